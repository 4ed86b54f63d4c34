//! `antiphon man`: writes one manual page for the program and all its subcommands, as roff.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap_mangen::Man;

/// Writes the page to stdout.
pub(super) fn run(mut command: clap::Command) -> anyhow::Result<ExitCode> {
    // Without `build` the subcommands do not know their full names.
    command.build();
    // `Man::render` would list the subcommands without their flags, so the sections are put together here.
    let mut page = Vec::new();
    let man = Man::new(command.clone());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    for subcommand in command.get_subcommands() {
        write_section(subcommand, &mut page)?;
    }
    write_notes(&command, ".SH", &mut page)?;
    man.render_version_section(&mut page)?;
    io::stdout().lock().write_all(escape_non_ascii(&page).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Converts the page to ASCII, since the treatment of other bytes depends on the formatter's locale.
fn escape_non_ascii(page: &[u8]) -> String {
    let letter = |letter: char| match letter {
        letter if letter.is_ascii() => letter.to_string(),
        letter => format!("\\[u{:04X}]", u32::from(letter)),
    };
    String::from_utf8_lossy(page).chars().map(letter).collect()
}

/// Appends a section for a subcommand, then the sections of its own subcommands.
fn write_section(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut inside = Vec::new();
    man.render_synopsis_section(&mut inside)?;
    man.render_description_section(&mut inside)?;
    man.render_options_section(&mut inside)?;
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
    // The sections of a subcommand become subsections of the page.
    page.extend(String::from_utf8_lossy(&inside).replace("\n.SH ", "\n.SS ").bytes());
    write_notes(command, ".SS", page)?;
    command
        .get_subcommands()
        .try_for_each(|below| write_section(below, page))
}

/// Appends the text below the flags in the help, with its line breaks.
fn write_notes(command: &clap::Command, heading: &str, page: &mut Vec<u8>) -> io::Result<()> {
    let Some(text) = command.get_after_help() else {
        return Ok(());
    };
    writeln!(page, "{heading} NOTES\n.nf")?;
    for line in text.to_string().lines() {
        // `\&` in front, since a line that begins with a full stop or an apostrophe is a request to roff.
        writeln!(page, "\\&{}", line.replace('\\', "\\e").replace('-', "\\-"))?;
    }
    writeln!(page, ".fi")
}
