"""The clients: the official SDKs, and Gemini's array stream, which no SDK asks for.

Each asks with one conversation and returns the text of the answer; `Refused` is the SDK's own error for a 400.
"""

import json
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable

SECONDS = 30
SETTINGS = {"api_key": "sk-test", "max_retries": 0, "timeout": SECONDS}


class Refused(Exception):
    """The SDK said that the request was bad, with the provider's words."""


@dataclass
class Client:
    """One SDK and one format: `ask(base, request, way)` in each of its ways."""

    name: str
    format: str
    ask: Callable
    ways: tuple = ("plain", "stream")


@contextmanager
def refusing(error):
    """The SDK's class for a 400 becomes ours."""
    try:
        yield
    except error as refusal:
        raise Refused(str(refusal)) from refusal


def messages(base, request, way):
    import anthropic

    client = anthropic.Anthropic(base_url=base, **SETTINGS)
    with refusing(anthropic.BadRequestError):
        if way == "stream":
            with client.messages.stream(**request) as events:
                return "".join(events.text_stream)
        return client.messages.create(**request).content[0].text


def chat(base, request, way):
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", **SETTINGS)
    with refusing(openai.BadRequestError):
        answer = client.chat.completions.create(**request, stream=way == "stream")
        if way == "stream":
            return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
        return answer.choices[0].message.content


def responses(base, request, way):
    import openai

    client = openai.OpenAI(base_url=f"{base}/v1", **SETTINGS)
    with refusing(openai.BadRequestError):
        answer = client.responses.create(**request, stream=way == "stream")
        if way == "plain":
            return answer.output_text
        events = list(answer)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        return text if events[-1].type == "response.completed" else f"{text} (ended by {events[-1].type})"


def gemini(base, request, way):
    from google import genai
    from google.genai import errors

    client = genai.Client(api_key="test", http_options={"base_url": base, "timeout": SECONDS * 1000})
    asked = {"model": request["model"], "contents": request["contents"], "config": {"tools": request["tools"]}}
    try:
        if way == "stream":
            return "".join(piece.text or "" for piece in client.models.generate_content_stream(**asked))
        return client.models.generate_content(**asked).text
    except errors.ClientError as error:
        if error.code != 400:
            raise
        raise Refused(str(error)) from error


def gemini_array(base, request, _way):
    """The stream without `alt=sse`: one JSON array, and a refusal inside one too."""
    url = f"{base}/v1beta/models/{request['model']}:streamGenerateContent"
    body = json.dumps({key: value for key, value in request.items() if key != "model"}).encode()
    asked = urllib.request.Request(url, body, {"content-type": "application/json", "x-goog-api-key": "test"})
    try:
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            pieces = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        raise Refused(json.load(error)[0]["error"]["message"]) from error
    return "".join(piece["candidates"][0]["content"]["parts"][0]["text"] for piece in pieces)


PYTHON = [
    Client("python anthropic", "messages", messages),
    Client("python openai chat", "chat", chat),
    Client("python openai responses", "responses", responses),
    Client("python google-genai", "gemini", gemini),
    Client("http gemini", "gemini", gemini_array, ways=("array",)),
]

AI_SDK = "node ai-sdk anthropic"
NODE = {
    "node anthropic": "messages",
    "node openai chat": "chat",
    "node openai responses": "responses",
}


@contextmanager
def node_clients(home):
    """The SDKs of a running `run.mjs`, which is asked and answers in lines of JSON; none without a home."""
    if not home:
        yield []
        return
    process = subprocess.Popen(
        ["node", "run.mjs"], cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )

    def asker(format_):
        def ask(base, request, way):
            retries = SETTINGS["max_retries"]
            question = {"format": format_, "base": base, "request": request, "way": way, "retries": retries}
            print(json.dumps(question), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline() or '{"failed": "node has ended"}')
            if "refused" in answer:
                raise Refused(answer["refused"])
            if "failed" in answer:
                raise RuntimeError(answer["failed"])
            return answer["said"]

        return ask

    try:
        yield [Client(name, format_, asker(format_)) for name, format_ in (NODE | {AI_SDK: "ai"}).items()]
    finally:
        process.kill()
        process.communicate()
