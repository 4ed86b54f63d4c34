//! The mends of rows: each turns the history that its server refuses into the one that is sent.

use antiphon_core::{mend::meet_demand, wire::Wire};
use bytes::Bytes;

use crate::support::refusals::{REFUSALS, ROWS, TABLE};

#[test]
fn the_mend_of_a_row_fits_the_history_that_its_text_is_about() {
    let none = |_: &[u8; 32]| false;
    let mut faults = Vec::new();
    for row in ROWS.iter().filter(|row| row.mend.is_some()) {
        let Some(repair) = &row.repair else { continue };
        let text = &REFUSALS.iter().find(|known| known.row == row.name).unwrap().text;
        let refusal = TABLE.read(text.as_bytes()).unwrap().refusal;
        let demand = refusal.demand.unwrap();
        let (wire, before): (Wire, Bytes) = (repair.wire.parse().unwrap(), repair.before.clone().into());
        let mended = meet_demand(&before, wire, &demand, &refusal.ids, &none).unwrap();
        if mended.body != repair.after {
            faults.push(format!("{}\t{}", row.name, String::from_utf8_lossy(&mended.body)));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
