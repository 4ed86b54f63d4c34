// A provider that is none: it answers Messages and Chat Completions with a word, or with a call of the first tool it is offered.
// The model `fails` has no credit, `limited` was asked too often, and a stream of `hangs` begins and never goes on.

import http from "node:http";

let made = 0;

function messages(body) {
  const tool = body.tools?.[0]?.name;
  const id = `toolu_01${String((made += 1)).padStart(22, "F")}`;
  const content = tool ? [{ type: "tool_use", id, name: tool, input: {} }] : [{ type: "text", text: "Well." }];
  return {
    id: `msg_${made}`,
    type: "message",
    role: "assistant",
    model: body.model,
    content,
    stop_reason: tool ? "tool_use" : "end_turn",
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 },
  };
}

function chat(body) {
  const message = { role: "assistant", content: "Well.", refusal: null };
  return { id: `chatcmpl-${(made += 1)}`, object: "chat.completion", created: 0, model: body.model, choices: [{ index: 0, message, finish_reason: "stop", logprobs: null }] };
}

/** Starts it on a free port; `stop` ends it. */
export async function provider() {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = JSON.parse(Buffer.concat(chunks).toString() || "{}");
    if (body.model === "fails") {
      const error = { type: "error", error: { type: "invalid_request_error", message: "the test wants a failure" } };
      response.writeHead(402, { "content-type": "application/json" }).end(JSON.stringify(error));
      return;
    }
    if (body.model === "limited") {
      const error = { type: "error", error: { type: "rate_limit_error", message: "the test wants a cooldown" } };
      response.writeHead(429, { "content-type": "application/json", "retry-after": "120" }).end(JSON.stringify(error));
      return;
    }
    if (body.model === "hangs") {
      const message = { ...messages(body), content: [], stop_reason: null };
      const begun = [
        { type: "message_start", message },
        { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
        { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Well" } },
      ];
      response.setHeader("content-type", "text/event-stream");
      for (const event of begun) response.write(`event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
      // Whoever waits for ever would hide that the proxy does.
      setTimeout(() => response.destroy(), 30_000).unref();
      return;
    }
    const answer = request.url.includes("/messages") ? messages(body) : chat(body);
    response.setHeader("content-type", "application/json").end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { port: server.address().port, stop };
}
