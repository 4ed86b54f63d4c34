// The official Node SDKs, asked in lines of JSON on the standard input, each answered in one line.
//
//   asked:     {"format": "messages" | "chat" | "responses", "base": URL, "request": {…}, "way": "plain" | "stream"}
//   answered:  {"said": TEXT} | {"refused": WORDS} (the SDK's error for a 400) | {"failed": WORDS}

import { createInterface } from "node:readline";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const settings = { apiKey: "sk-test", maxRetries: 0, timeout: 30_000 };
const openai = (base) => new OpenAI({ ...settings, baseURL: `${base}/v1` });

async function messages(base, request, streamed) {
  const client = new Anthropic({ ...settings, baseURL: base });
  if (streamed) return client.messages.stream(request).finalText();
  return (await client.messages.create(request)).content[0].text;
}

async function chat(base, request, streamed) {
  const answer = await openai(base).chat.completions.create({ ...request, stream: streamed });
  if (!streamed) return answer.choices[0].message.content;
  let text = "";
  for await (const chunk of answer) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

async function responses(base, request, streamed) {
  const answer = await openai(base).responses.create({ ...request, stream: streamed });
  if (!streamed) return answer.output_text;
  let text = "";
  let last;
  for await (const event of answer) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event.type;
  }
  return last === "response.completed" ? text : `${text} (ended by ${last})`;
}

const asks = { messages, chat, responses };

async function answer({ format, base, request, way }) {
  try {
    return { said: await asks[format](base, request, way === "stream") };
  } catch (error) {
    const refused = error instanceof Anthropic.BadRequestError || error instanceof OpenAI.BadRequestError;
    return { [refused ? "refused" : "failed"]: String(error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
