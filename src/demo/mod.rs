//! `antiphon demo`: a strict provider, the proxy and its dashboard in one process, and stories played on them.
//!
//! No key, no network but loopback, no file. Every verdict is the provider's or the proxy's own answer. The last story
//! starts an MCP server of its own, behind `antiphon mcp`.

mod client;
mod setup;
mod stage;
mod stories;
mod tell;
mod toy_server;
mod traffic;

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use crate::{app::RunningProxy, server::Tasks, wire::Wire};
use setup::{Cast, DRAIN};
use stage::{Score, Stage};
use tell::Tell;
pub use toy_server::serve_toy;

/// Default addresses of the proxy, the same as those of `serve`.
const DATA: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4747);
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4748);
/// Default address of the provider alone.
const PROVIDER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4749);

/// Pause between two stories on a terminal.
const PACE: Duration = Duration::from_millis(800);

/// Function that returns the lines of a diff: format, both bodies, and the number of lines around a change.
pub type DiffLines = fn(Wire, &[u8], &[u8], usize) -> Vec<String>;

/// Settings of the demonstration.
#[derive(Clone, Debug)]
pub struct Play {
    /// Address of the proxy. `None`: that of `serve`, or a free port if it is taken.
    pub listen: Option<SocketAddr>,
    /// Address of the admin listener, with the same default.
    pub admin_listen: Option<SocketAddr>,
    /// `true` if the processes stay after the stories, with some traffic, until they are stopped.
    pub stays: bool,
    /// `true` if a person reads the output on a terminal.
    pub is_read_along: bool,
    /// `true` if lines have colours.
    pub has_colours: bool,
    /// The diff of `antiphon repair --diff`.
    pub diff: DiffLines,
    /// Variables by which `antiphon mcp` finds a proxy and its own token.
    pub wrapper_variables: [&'static str; 2],
}

/// Plays the stories to `out`, until `stop` ends. Returns `true` if all of them ended as expected.
pub async fn play(play: Play, out: Box<dyn Write + Send>, stop: impl Future<Output = ()>) -> anyhow::Result<bool> {
    let tasks = Tasks::on_current_runtime();
    let cast = Cast::start_all(stories::KEYS, &tasks)?;
    let (listen, admin_listen) = (Place::of(play.listen, DATA), Place::of(play.admin_listen, ADMIN));
    let running = setup::start_proxy(&cast, listen.address, admin_listen.address).await?;
    let mut stage = Stage {
        tell: Tell::to_writer(out, play.has_colours),
        provider: cast.main,
        provider_at: cast.main_at,
        proxy_at: running.data,
        admin_at: running.admin,
        tokens: cast.tokens,
        diff: play.diff,
        wrapper_variables: play.wrapper_variables,
        pace: if play.is_read_along { PACE } else { Duration::ZERO },
        score: Score::default(),
    };
    greet_reader(&mut stage.tell, &running, cast.main_at, [&listen, &admin_listen])?;
    let told = async {
        stories::tell(&mut stage).await?;
        show_score(&mut stage, play.stays)?;
        if play.stays {
            traffic::run(&stage).await?;
        }
        io::Result::Ok(())
    };
    let ended = tokio::select! {
        told = told => told,
        () = stop => Ok(()),
    };
    running.drain().await;
    tasks.drain(DRAIN).await;
    ended?;
    Ok(stage.score.is_as_expected())
}

/// Serves the strict provider alone until `stop` ends.
pub async fn provider_only(
    listen: Option<SocketAddr>,
    mut out: Box<dyn Write + Send>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let tasks = Tasks::on_current_runtime();
    let place = Place::of(listen, PROVIDER);
    let at = setup::serve_provider(&setup::new_provider(&[])?, place.address, &tasks)?;
    place.say(&mut out)?;
    writeln!(
        out,
        "a strict provider at http://{at}: Messages, Chat Completions, Responses, Gemini; any key will do\n\
         it refuses broken histories in the real provider's words, and else calls one of your tools every other turn\n\
         \n  \
         ANTHROPIC_BASE_URL=http://{at}\n  OPENAI_BASE_URL=http://{at}/v1\n  GOOGLE_GEMINI_BASE_URL=http://{at}\n\n\
         behind the proxy: antiphon serve --upstream anthropic=http://{at} --upstream openai=http://{at} \
         --upstream gemini=http://{at}\n\
         press Ctrl-C to end"
    )?;
    out.flush()?;
    stop.await;
    tasks.drain(DRAIN).await;
    Ok(())
}

/// An address to listen on, and the default address that could not be used.
struct Place {
    address: SocketAddr,
    /// The reason for a free port in place of the default address.
    avoided: Option<String>,
}

impl Place {
    /// Chooses the given address, else the default one if it is free, else a free port.
    fn of(said: Option<SocketAddr>, usual: SocketAddr) -> Self {
        let address = said.unwrap_or(usual);
        let failure = match said {
            None => std::net::TcpListener::bind(usual).err(),
            Some(_) => None,
        };
        let avoided = failure.map(|error| match error.kind() {
            io::ErrorKind::AddrInUse => format!("{usual} is taken: another port is used"),
            _ => format!("{usual} cannot be used ({error}): another port is used"),
        });
        Self {
            address: if avoided.is_some() {
                SocketAddr::new(usual.ip(), 0)
            } else {
                address
            },
            avoided,
        }
    }

    fn say(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.avoided {
            Some(reason) => writeln!(out, "{reason}"),
            None => Ok(()),
        }
    }
}

fn greet_reader(
    tell: &mut Tell,
    running: &RunningProxy,
    provider_at: SocketAddr,
    places: [&Place; 2],
) -> io::Result<()> {
    tell.highlight_line("Failures that users have reported. Each request is sent to the provider, then to Antiphon.")?;
    tell.write_line(
        "Everything runs on this machine: no key, no network, no file. The provider is scripted, and\n\
         refuses broken conversations in the words of Anthropic and OpenAI.",
    )?;
    tell.write_line("")?;
    tell.write_line(&format!(
        "   provider   http://{provider_at}\n   antiphon   http://{}\n   dashboard  http://{}/",
        running.data, running.admin
    ))?;
    for reason in places.iter().filter_map(|place| place.avoided.as_ref()) {
        tell.write_line(&format!("   {reason}"))?;
    }
    Ok(())
}

fn show_score(stage: &mut Stage, stays: bool) -> io::Result<()> {
    let score = stage.score;
    stage.tell.write_line("")?;
    let line = format!(
        "without Antiphon: {1} of {0} failed; with Antiphon: {2} of {0} went on",
        score.stories, score.failed, score.went_on
    );
    stage.tell.judge_line(score.is_as_expected(), &line)?;
    if !score.is_as_expected() {
        let request = "Something above is not as it should be: please report it.";
        stage.tell.judge_line(false, request)?;
    }
    let more = if stays {
        format!(
            "\nThe demo keeps running, with example traffic on the dashboard: http://{}/\n\
             Your own agent, against the scripted provider:  antiphon run --listen {} -- COMMAND\n\
             Press Ctrl-C to end.",
            stage.admin_at, stage.proxy_at
        )
    } else {
        "\nThe demo has ended.\n\
         antiphon demo --keep     keeps it running, with example traffic on the dashboard\n\
         antiphon run -- COMMAND  runs your own agent through Antiphon\n\
         antiphon once --tool deploy -- ./deploy.sh  runs a command once an hour, and replays its result"
            .to_owned()
    };
    stage.tell.write_line(&more)
}
