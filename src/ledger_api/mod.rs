//! `/ledger/v1`.
