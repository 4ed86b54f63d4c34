"""Judges one Chat Completions history per line of stdin by mistral-common. Prints `ok`, or the refusal, for each."""

import json
import sys

from mistral_common.protocol.instruct.messages import (
    AssistantMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mistral_common.protocol.instruct import validator

KINDS = {"user": UserMessage, "assistant": AssistantMessage, "system": SystemMessage, "tool": ToolMessage}
# The newest validator of the installed version.
NEWEST = max(
    (name for name in dir(validator) if name.startswith("MistralRequestValidatorV")),
    key=lambda name: int(name.rsplit("V", 1)[1]),
)


def main():
    judge = getattr(validator, NEWEST)(mode=validator.ValidationMode.serving)
    for line in sys.stdin:
        try:
            judge.validate_messages([KINDS[message["role"]](**message) for message in json.loads(line)])
            print("ok")
        except Exception as error:  # noqa: BLE001, every refusal is an answer
            print(f"{type(error).__name__}: {error}".replace("\n", " "))


if __name__ == "__main__":
    main()
