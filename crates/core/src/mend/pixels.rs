//! The type and the size of an image, from its first bytes.

/// The most base64 digits that are decoded for a head. The size of a JPEG stands behind its thumbnail.
pub(super) const HEAD_DIGITS: usize = 400_000;

/// Returns the media type of an image that begins with these bytes: PNG, JPEG, GIF or WebP.
pub(super) fn media_type_of(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Returns width and height in pixels of an image that begins with these bytes.
pub(super) fn pixels_of(head: &[u8]) -> Option<(u32, u32)> {
    match media_type_of(head)? {
        "image/png" => Some((big(head, 16, 4)?, big(head, 20, 4)?)),
        "image/gif" => Some((little(head, 6, 2)?, little(head, 8, 2)?)),
        "image/jpeg" => jpeg_pixels(head),
        _ => webp_pixels(head),
    }
}

/// Returns the unsigned number of `length` bytes at `at`, the least byte first.
fn little(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| (number << 8) | u32::from(*byte)),
    )
}

/// Returns the unsigned number of `length` bytes at `at`, the greatest byte first.
fn big(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().fold(0, |number, byte| (number << 8) | u32::from(*byte)))
}

/// Walks over the segments of a JPEG up to the one with its size.
fn jpeg_pixels(head: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2_usize;
    loop {
        crate::work::count(1);
        let marker = match head.get(at..at.checked_add(2)?)? {
            [0xFF, marker] => *marker,
            _ => return None,
        };
        let start = at.checked_add(2)?;
        at = match marker {
            // A byte that fills the gap between segments.
            0xFF => at.checked_add(1)?,
            // Markers without a segment.
            0x01 | 0xD0..=0xD8 => start,
            // The size stands before the first scan, or nowhere.
            0xD9 | 0xDA => return None,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                let height = big(head, start.checked_add(3)?, 2)?;
                return Some((big(head, start.checked_add(5)?, 2)?, height));
            }
            _ => start.checked_add(usize::try_from(big(head, start, 2)?).ok()?.max(2))?,
        };
    }
}

fn webp_pixels(head: &[u8]) -> Option<(u32, u32)> {
    match head.get(12..16)? {
        b"VP8 " => Some((little(head, 26, 2)? & 0x3FFF, little(head, 28, 2)? & 0x3FFF)),
        b"VP8L" => {
            let bits = little(head, 21, 4)?;
            Some((
                (bits & 0x3FFF).saturating_add(1),
                ((bits >> 14) & 0x3FFF).saturating_add(1),
            ))
        }
        b"VP8X" => Some((
            little(head, 24, 3)?.saturating_add(1),
            little(head, 27, 3)?.saturating_add(1),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_and_size_are_read_from_the_head() {
        let png = [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", &[0, 0, 8, 0x34, 0, 0, 5, 0x78][..]].concat();
        let gif = b"GIF89a\x02\x01\x03\0".to_vec();
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08\x01\x02\x03\x04\x03".to_vec();
        let lossy = [b"RIFF\0\0\0\0WEBPVP8 ", &[0; 10][..], &[0x80, 0x02, 0xe0, 0x01]].concat();
        let lossless = [b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f", &[0xff, 0xc1, 0x31, 0][..]].concat();
        let extended = [b"RIFF\0\0\0\0WEBPVP8X", &[0; 8][..], &[0xcf, 7, 0, 9, 0, 0]].concat();
        let rows = [
            (png, "image/png", (2100, 1400)),
            (gif, "image/gif", (258, 3)),
            (jpeg, "image/jpeg", (0x304, 0x102)),
            (lossy, "image/webp", (640, 480)),
            (lossless, "image/webp", (512, 200)),
            (extended, "image/webp", (2000, 10)),
        ];
        for (head, kind, pixels) in rows {
            assert_eq!(media_type_of(&head), Some(kind));
            assert_eq!(pixels_of(&head), Some(pixels), "{kind}");
            for end in 0..head.len() {
                let cut = pixels_of(head.get(..end).unwrap());
                assert!(cut.is_none() || cut == Some(pixels), "{kind} {end}");
            }
        }
        assert_eq!(media_type_of(b"%PDF-1.4"), None);
        assert_eq!(pixels_of(b""), None);
    }
}
