"""One streamed request of the Anthropic SDK: `still.py BASE`. Prints the text, or the class and words of the error.

Run by `tests/it/timeouts/sdk_on_paused_time.rs`, whose proxy lives on paused time.
"""

import json
import sys

import anthropic


def main(base):
    client = anthropic.Anthropic(base_url=base, api_key="sk-test", max_retries=0, timeout=30)
    request = {"model": "claude", "max_tokens": 16, "messages": [{"role": "user", "content": "hello"}]}
    said = ""
    try:
        with client.messages.stream(**request) as events:
            for text in events.text_stream:
                said += text
    except anthropic.AnthropicError as error:
        return {"said": said, "error": type(error).__name__, "words": str(error)}
    except Exception as error:  # noqa: BLE001, the transport's own errors are told too
        return {"said": said, "error": f"{type(error).__module__}.{type(error).__name__}", "words": str(error)}
    return {"said": said}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
