//! Every text that mends write. The texts are constant, because providers cache prefixes that contain them.

/// The content of a message or part of which a mend has left nothing.
pub(super) const EMPTY: &str = "[antiphon: this message is empty.]";

/// The user's message behind a last message of the assistant.
pub(super) const GO_ON: &str = "[antiphon: go on from where your last message ends.]";

/// The mark of instructions that are text of the user now.
pub(super) const INSTRUCTIONS: &str = "[antiphon: instructions of the system, in the place where they stood:]";

/// The user's message in the place of an item with a sealed summary.
pub(super) const SEALED_SUMMARY: &str =
    "[antiphon: a sealed summary of earlier messages stood here; this provider cannot read it.]";
