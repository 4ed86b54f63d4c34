//! Places in a body as refusals write them: `messages.3.content.0.tool_use.text`, `messages[3].content[0]`.

/// One step of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'p> {
    /// An index of a list.
    Index(usize),
    /// The name of a member or type.
    Name(&'p str),
}

/// Returns the steps of a place.
pub(super) fn steps(place: &str) -> Vec<Step<'_>> {
    let separated = place.split(['.', '[', ']', '\'', '"', '`']);
    let step = |text| match str::parse(text) {
        Ok(index) => Step::Index(index),
        Err(_) => Step::Name(text),
    };
    separated.filter(|text| !text.is_empty()).map(step).collect()
}

/// Returns the indices of a place, in their order: those of a message, of a block in it, and so on.
pub(super) fn indices(place: &str) -> Vec<usize> {
    let indices = steps(place).into_iter().filter_map(|step| match step {
        Step::Index(index) => Some(index),
        Step::Name(_) => None,
    });
    indices.collect()
}

/// Returns the names of a place, in their order.
pub(super) fn names(place: &str) -> Vec<&str> {
    let names = steps(place).into_iter().filter_map(|step| match step {
        Step::Name(name) => Some(name),
        Step::Index(_) => None,
    });
    names.collect()
}

/// Returns `true` if two names are the same but for underscores and case: `function_call`, `functionCall`.
pub(super) fn is_same_name(one: &str, other: &str) -> bool {
    let letters = |name: &str| {
        let letters = name.bytes().filter(|letter| *letter != b'_');
        letters.map(|letter| letter.to_ascii_lowercase()).collect::<Vec<u8>>()
    };
    letters(one) == letters(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_all_providers_have_steps() {
        for place in [
            "messages.3.content.0.tool_use.text",
            "messages[3].content[0].'tool_use'.text",
        ] {
            assert_eq!(indices(place), [3, 0], "{place}");
            assert_eq!(names(place), ["messages", "content", "tool_use", "text"], "{place}");
        }
        assert_eq!((indices(""), names("")), (Vec::new(), Vec::new()));
    }
}
