"""The conversations, as the requests that the SDKs send, and what the provider says to the broken ones."""

from dataclasses import dataclass

QUOTED = "– ünïcode, \"quotes\""


@dataclass
class Conversation:
    """One request; a broken one names the refusal, and what is real in it."""

    name: str
    request: dict
    refusal: str = ""
    real: tuple = ()


# Anthropic Messages.


def use(id_):
    return {"type": "tool_use", "id": id_, "name": "read_file", "input": {"path": f"{id_}.txt"}}


def result(id_):
    return {"type": "tool_result", "tool_use_id": id_, "content": f"the real result of {id_} {QUOTED}"}


def messages(*history):
    tool = {"name": "read_file", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
    return {"model": "claude-opus-4-5", "max_tokens": 64, "tools": [tool], "messages": list(history)}


TWO_USES = [{"type": "text", "text": "Reading."}, use("toolu_01A"), use("toolu_01B")]

MESSAGES = [
    Conversation(
        "healthy",
        messages(
            {"role": "user", "content": "Read both files."},
            {"role": "assistant", "content": TWO_USES},
            {"role": "user", "content": [result("toolu_01B"), result("toolu_01A"), {"type": "text", "text": "Go on."}]},
        ),
    ),
    Conversation(
        "broken: one late, one never",
        messages(
            {"role": "user", "content": "Read both files."},
            {"role": "assistant", "content": TWO_USES},
            {"role": "user", "content": "Hurry!"},
            {"role": "assistant", "content": "One moment."},
            {"role": "user", "content": [result("toolu_01A"), {"type": "text", "text": "Go on."}]},
        ),
        "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_01A, toolu_01B.",
        ("Hurry!", "Go on.", "the real result of toolu_01A"),
    ),
]


# OpenAI Chat Completions.


def call(id_):
    return {"id": id_, "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}


def tool(id_):
    return {"role": "tool", "tool_call_id": id_, "content": f"the real result of {id_} {QUOTED}"}


def chat(*history):
    return {"model": "gpt-4.1", "messages": list(history)}


TWO_CALLS = {"role": "assistant", "content": None, "tool_calls": [call("call_A"), call("call_B")]}

CHAT = [
    Conversation(
        "healthy",
        chat(
            {"role": "system", "content": "You are an agent."},
            {"role": "user", "content": "Read both files."},
            TWO_CALLS,
            tool("call_B"),
            tool("call_A"),
            {"role": "user", "content": "Go on."},
        ),
    ),
    Conversation(
        "broken: one late, one never",
        chat(
            {"role": "user", "content": "Read both files."},
            TWO_CALLS,
            {"role": "user", "content": "Hurry!"},
            {"role": "assistant", "content": "One moment."},
            tool("call_A"),
            {"role": "user", "content": "Go on."},
        ),
        "The following tool_call_ids did not have response messages: call_A, call_B",
        ("Hurry!", "Go on.", "the real result of call_A"),
    ),
]


# OpenAI Responses.


def item_call(key):
    name = {"id": f"fc_{key}", "call_id": f"call_{key}", "name": "read_file"}
    return {"type": "function_call", **name, "arguments": '{"path": "a.txt"}'}


def item_output(key):
    output = f"the real result of call_{key} {QUOTED}"
    return {"type": "function_call_output", "call_id": f"call_{key}", "output": output}


def item_custom_call(key):
    return {"type": "custom_tool_call", "call_id": f"call_{key}", "name": "apply", "input": "*** Begin Patch"}


def item_spoken(text):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def responses(*items, **more):
    return {"model": "gpt-5", "store": False, "input": list(items), **more}


ASKED = {"role": "user", "content": "Read both files."}
HURRIED = {"role": "user", "content": "Hurry!"}
GO_ON = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}
REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}

RESPONSES = [
    Conversation(
        "healthy",
        responses(
            ASKED,
            REASONED,
            item_call("A"),
            item_call("B"),
            item_output("B"),
            item_output("A"),
            item_spoken("Both are read."),
            GO_ON,
            include=["reasoning.encrypted_content"],
        ),
    ),
    Conversation(
        "healthy: the calls are kept by the server",
        responses(item_output("A"), item_output("B"), previous_response_id="resp_1", store=True),
    ),
    Conversation(
        "broken: one late, one never",
        responses(
            ASKED,
            REASONED,
            item_call("A"),
            item_call("B"),
            HURRIED,
            item_spoken("One moment."),
            item_output("A"),
            GO_ON,
        ),
        "No tool output found for function call call_B.",
        ("Hurry!", "Go on.", "the real result of call_A", "b3BhcXVl"),
    ),
    Conversation(
        "broken: an unanswered call, then the user speaks",
        responses(ASKED, REASONED, item_call("A"), HURRIED),
        "No tool output found for function call call_A.",
        ("Hurry!", "call_A", "b3BhcXVl"),
    ),
    Conversation(
        "broken: an unanswered custom call",
        responses(ASKED, item_custom_call("C"), HURRIED),
        "No tool output found for custom tool call call_C.",
        ("Hurry!", "call_C", "*** Begin Patch"),
    ),
    Conversation(
        "broken: an output whose call was trimmed away",
        responses(item_output("A"), GO_ON),
        "No tool call found for function call output with call_id call_A.",
        ("Go on.", "the real result of call_A"),
    ),
]


# Gemini.


def said(role, text):
    return {"role": role, "parts": [{"text": text}]}


def function(kind, name, id_, **more):
    return {kind: ({"id": id_} if id_ else {}) | {"name": name} | more}


def function_call(name, id_=""):
    return function("functionCall", name, id_, args={"path": "a.txt"})


def function_response(name, id_=""):
    return function("functionResponse", name, id_, response={"result": f"the real result of {id_ or name} {QUOTED}"})


def signed(call_part):
    return {"thoughtSignature": "c2lnbmVk"} | call_part


def calls(*parts):
    return {"role": "model", "parts": list(parts)}


def answers(*parts):
    return {"role": "user", "parts": list(parts)}


def gemini(*contents):
    declared = [{"name": name, "description": "A tool."} for name in ("read_file", "list_dir")]
    return {
        "model": "gemini-2.5-pro",
        "contents": list(contents),
        "tools": [{"functionDeclarations": declared}],
    }


TWO_NAMED = calls({"text": "Reading."}, function_call("read_file"), function_call("list_dir"))
COUNT = "the number of function response parts is equal to the number of function call parts"

GEMINI = [
    Conversation(
        "healthy",
        gemini(
            said("user", "Read both."),
            TWO_NAMED,
            answers(function_response("read_file"), function_response("list_dir")),
            said("model", "Both are read."),
            said("user", "Go on."),
        ),
    ),
    Conversation(
        "healthy: paired by id, in another order",
        gemini(
            said("user", "Read both."),
            calls(signed(function_call("read_file", "read_1")), function_call("read_file", "read_2")),
            answers(function_response("read_file", "read_2"), function_response("read_file", "read_1")),
        ),
    ),
    Conversation(
        "broken: fewer responses than calls",
        gemini(
            said("user", "Read both."),
            TWO_NAMED,
            answers(function_response("read_file")),
            said("user", "Go on."),
        ),
        COUNT,
        ("Go on.", "the real result of read_file"),
    ),
    Conversation(
        "broken: one late, one never",
        gemini(
            said("user", "Read both."),
            calls(signed(function_call("read_file", "read_1")), function_call("list_dir", "list_1")),
            said("user", "Hurry!"),
            said("model", "One moment."),
            answers(function_response("read_file", "read_1")),
            said("user", "Go on."),
        ),
        COUNT,
        ("Hurry!", "Go on.", "the real result of read_1", "c2lnbmVk"),
    ),
    Conversation(
        "broken: resumed, each finished result twice",
        gemini(
            said("user", "Read both."),
            calls({"text": "Reading."}, function_call("read_file", "read_1")),
            answers(function_response("read_file", "read_1"), function_response("read_file", "read_1")),
            calls({"text": "Listing."}, function_call("list_dir", "list_1")),
            answers(function_response("list_dir", "list_1"), function_response("list_dir", "list_1")),
            said("model", "Both are read."),
            said("user", "Go on."),
        ),
        COUNT,
        ("Both are read.", "Go on.", "the real result of read_1", "the real result of list_1"),
    ),
    Conversation(
        "broken: a response whose call was trimmed away",
        gemini(answers(function_response("read_file", "read_1")), said("model", "It is read."), said("user", "Go on.")),
        "function response turn comes immediately after a function call turn",
        ("It is read.", "Go on.", "the real result of read_1"),
    ),
    Conversation(
        "broken: trimmed, begins with a call",
        gemini(
            calls(signed(function_call("read_file", "read_1"))),
            answers(function_response("read_file", "read_1")),
            said("user", "Go on."),
        ),
        "function call turn comes immediately after a user turn",
        ("Go on.", "the real result of read_1", "c2lnbmVk"),
    ),
]


@dataclass
class Format:
    """A wire format: its upstream in Antiphon, its name in the metrics, its conversations."""

    upstream: str
    label: str
    conversations: list


FORMATS = {
    "messages": Format("anthropic", "anthropic", MESSAGES),
    "chat": Format("openai", "openai_chat", CHAT),
    "responses": Format("openai", "openai_responses", RESPONSES),
    "gemini": Format("gemini", "gemini", GEMINI),
}
