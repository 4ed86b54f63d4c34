"""The providers' rules and answers, one format a file, the same parts in the same order.

Each has `PATH` (the paths that it takes), `check` (raises where the provider would refuse), `reply` (what it answers to
the rest) and `error` (a refusal in its shape).
"""

from . import chat, gemini, messages, responses

BY_PREFIX = {
    "/v1/messages": messages,
    "/v1/responses": responses,
    "/v1/models/": gemini,
    "/v1beta/": gemini,
    "/": chat,
}


def format_of(path):
    """The format that owns a path; Chat Completions owns what nobody else does."""
    return next(format_ for prefix, format_ in BY_PREFIX.items() if path.startswith(prefix))
