// The official Node SDKs, asked in lines of JSON on the standard input, each answered in one line.
//
//   asked:     {"format": "messages" | "chat" | "responses" | "ai", "base": URL, "request": {…},
//               "way": "plain" | "stream", "retries": NUMBER}
//   answered:  {"said": TEXT} | {"refused": WORDS} (the SDK's error for a 400) | {"failed": WORDS}

import { createInterface } from "node:readline";

import { createAnthropic } from "@ai-sdk/anthropic";
import { generateText, streamText } from "ai";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const settings = { apiKey: "sk-test", timeout: 30_000 };
const openai = (base, maxRetries) => new OpenAI({ ...settings, maxRetries, baseURL: `${base}/v1` });

async function messages(base, request, streamed, maxRetries) {
  const client = new Anthropic({ ...settings, maxRetries, baseURL: base });
  if (streamed) return client.messages.stream(request).finalText();
  return (await client.messages.create(request)).content[0].text;
}

async function chat(base, request, streamed, retries) {
  const answer = await openai(base, retries).chat.completions.create({ ...request, stream: streamed });
  if (!streamed) return answer.choices[0].message.content;
  let text = "";
  for await (const chunk of answer) text += chunk.choices[0]?.delta.content ?? "";
  return text;
}

async function responses(base, request, streamed, retries) {
  const answer = await openai(base, retries).responses.create({ ...request, stream: streamed });
  if (!streamed) return answer.output_text;
  let text = "";
  let last;
  for await (const event of answer) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event.type;
  }
  return last === "response.completed" ? text : `${text} (ended by ${last})`;
}

// The AI SDK builds the request itself. Its base URL is used as it is given.
async function ai(base, _request, streamed, maxRetries) {
  const model = createAnthropic({ apiKey: "sk-test", baseURL: base })("claude-opus-4-5");
  const asked = { model, prompt: "Hello.", maxRetries };
  if (!streamed) return (await generateText(asked)).text;
  let text = "";
  // Without this the error is printed, and the stream ends as if it were whole.
  const answer = streamText({ ...asked, onError: () => {} });
  for await (const part of answer.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") text += part.text;
  }
  return text;
}

const asks = { messages, chat, responses, ai };

async function answer({ format, base, request, way, retries }) {
  try {
    return { said: await asks[format](base, request, way === "stream", retries) };
  } catch (error) {
    const refused = error instanceof Anthropic.BadRequestError || error instanceof OpenAI.BadRequestError;
    return { [refused ? "refused" : "failed"]: String(error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
