//! Credentials that the operator gave, and which of them a request goes up with. Pure: `now` is a parameter.
