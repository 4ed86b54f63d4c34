//! The state of a profile, as operators see it.

use crate::labels::labelled_enum;

labelled_enum! {
    /// The state of a profile.
    pub enum ProfileState {
        /// It serves requests.
        Ready = "ready",
        /// It cools down for a short time, for one model or for all.
        Cooling = "cooling",
        /// It is disabled until an operator acts, or for hours.
        Disabled = "disabled",
    }
}
