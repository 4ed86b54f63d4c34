//! Mends: changes that meet what a server demands beyond the rules of its format, after it has refused a body or taught an
//! earlier one.
//!
//! A mend finds the places in a body that it fits, and the demand says at which of them it acts. The body decides, not the
//! index in the refusal: gateways count after their own translation. Each mend is a function of body and arguments, takes
//! linear time, and changes nothing when it is made again. None touches ids and pairs, tools, output formats, or what the
//! user has written newly, unless the provider has refused just that before.

mod actions;
mod apply;
mod arguments;
mod body;
mod call_keys;
mod call_order;
mod candidate;
mod carried;
mod fits;
mod join_contents;
mod kinds;
mod marked_block;
mod media;
mod mend_list;
mod pixels;
mod place;
mod required_members;
mod server_pairs;
mod string_end;
mod texts;
mod turns;
mod wordless;

pub use actions::action_of;
pub use apply::{Mended, meet_demand, mend_body};
pub use arguments::{ArgumentFault, arguments_of, check_argument};
pub use candidate::BlockHash;
pub use fits::{MendFit, find_fits};
pub use mend_list::{MENDS_MAX, Mend};
