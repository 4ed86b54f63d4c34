//! From findings to a plan: what will be done about each breach of the pairing rules, and a report of it.
