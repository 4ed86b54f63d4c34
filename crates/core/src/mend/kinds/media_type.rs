//! The media type of an image becomes that of its bytes.

use crate::{
    mend::{
        body::MendBody,
        candidate::{BlockPlace, Candidate, MendChange},
        media::{self, MediaKind},
        pixels,
    },
    splice::{Edit, Piece},
    work,
};

/// The number of base64 digits from which a type is known.
const TYPE_DIGITS: usize = 32;

/// Returns the images whose media type is not that of their bytes.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (list, blocks) in body.lists.iter().enumerate() {
        work::count(blocks.blocks.len());
        for (at, block) in blocks.blocks.iter().enumerate() {
            let Some(media) = media::read(body, block).filter(|media| media.kind == MediaKind::Image) else {
                continue;
            };
            let (Some(said), Some(real)) = (media.said, pixels::media_type_of(&media.head(TYPE_DIGITS))) else {
                continue;
            };
            // An escape is another spelling of the same type.
            let said_text: Vec<u8> = body
                .json
                .bytes(said)
                .iter()
                .copied()
                .filter(|letter| *letter != b'\\')
                .collect();
            if !said_text.eq_ignore_ascii_case(real.as_bytes()) {
                let edit = Edit {
                    span: said,
                    pieces: vec![Piece::Constant(real)],
                };
                let class = String::from_utf8_lossy(&block.kind);
                let place = BlockPlace { list, at };
                found.push(Candidate::of_block(
                    blocks.message,
                    place,
                    &class,
                    MendChange::Edit(vec![edit]),
                ));
            }
        }
    }
    found
}
