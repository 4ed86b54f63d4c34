"""The conversation that every sample holds: what the user says, what the model answers, what the tools return.

Each text and each result has a word of its own, so that a request tells which of them it holds.
"""

# Words of the prompts, by place in the script.
PROMPTS = {
    "turn-1": "Please do turn-1. avocet",
    "turn-2": "Please do turn-2. bittern",
    "turn-3": "Please do turn-3. curlew",
    "turn-4": "Please do turn-4. dunlin",
}
RESUMED = "Please go on with turn-9. eider"
FILES = {
    "one.txt": "result-1 kestrel\n",
    "two.txt": "result-2 lapwing\n",
    "three.txt": "result-3 merlin\n",
    "four.txt": "result-4 nightjar\n",
    "five.txt": "result-5 ouzel\n",
}
SUB_PROMPT = "Please do turn-sub. falcon"
SUB_ANSWER = "answer-sub godwit"
SIGNATURE = "c2lnbmF0dXJlIG9mIHRoZSBmaXh0dXJl" * 3
# The tool that runs a command, where it is not "Bash".
SHELLS = {"copilot": "bash", "qwen-code": "run_shell_command"}
SESSION = "5e551001-0000-4000-8000-0000000000aa"


def call(client, number, file):
    """A call that reads a file."""
    if client == "codex":
        return {"id": f"call_Fixture{number:016d}", "name": "exec_command", "input": {"cmd": f"cat {file}"}}
    known = {"command": f"cat {file}", "description": "Reads a file"}
    if client == "qwen-code":
        known["is_background"] = False
    return {"id": f"toolu_01Fixture{number:015d}", "name": SHELLS.get(client, "Bash"), "input": known}


def sub_agent(name):
    """A call of a sub-agent, under the name that this version has for it."""
    given = {"description": "Asks another", "prompt": SUB_PROMPT, "subagent_type": "general-purpose"}
    if name == "Agent":
        given["run_in_background"] = False
    return {"id": "toolu_01Fixture000000000000009", "name": name, "input": given}


def script(client, agent=None):
    """The answers of the model, by place. `agent` is the name of the tool that starts a sub-agent."""
    thinking = {"thinking": "thought-2 osprey", "signature": SIGNATURE}
    third = sub_agent(agent) if agent else call(client, 4, "four.txt")
    return {
        "turn-1": [[call(client, 1, "one.txt")], [{"text": "answer-1 plover"}]],
        "turn-2": [[thinking, call(client, 2, "two.txt"), call(client, 3, "three.txt")], [{"text": "answer-2 quail"}]],
        "turn-3": [[{"text": "before-3 redshank"}, third], [{"text": "answer-3 siskin"}]],
        "turn-4": [[call(client, 5, "five.txt")], [{"text": "answer-4 turnstone"}]],
        "turn-sub": [[{"text": SUB_ANSWER}]],
        "turn-9": [[{"text": "answer-9 wigeon"}]],
    }


# The words that a whole request holds, beside the results: they are told apart by the ids of their calls.
TEXTS = {
    "prompt-1": "avocet",
    "answer-1": "plover",
    "prompt-2": "bittern",
    "answer-2": "quail",
    "prompt-3": "curlew",
    "before-3": "redshank",
    "answer-3": "siskin",
    "prompt-4": "dunlin",
    "answer-4": "turnstone",
}


def results(client, agent=None):
    """The word in the result of each call."""
    number = "call_Fixture{:016d}" if client == "codex" else "toolu_01Fixture{:015d}"
    third = {number.format(9): "godwit"} if agent else {number.format(4): "nightjar"}
    return {number.format(1): "kestrel", number.format(2): "lapwing", number.format(3): "merlin"} | third | {
        number.format(5): "ouzel"
    }
