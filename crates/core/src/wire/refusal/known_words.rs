//! The words that providers use in their errors: all that is kept of a refusal when its text is masked.

use std::collections::HashSet;

/// Words of errors in English, and names of members, in lower case and in alphabetical order.
///
/// A word belongs here if it describes a request to a model. Names of people, places, programs or companies do not.
const ERROR_WORDS: &str = "\
    a able above accept accepted accepts access add added additional after again all allow allowed allows already \
    also alternate alternating always ambiguous an and annotation annotations another any api app appear appears \
    application applied apply appropriate are aren't argument arguments array arrays as assistant assistants at \
    attachment attachments attempt attempted audio auto available avoid backend bad badly base base64 base64_source \
    be because been before begin beginning begins being below beta between beyond blank block blocks body bool \
    boolean both breakpoint breakpoints broken budget budget_tokens but by byte bytes cache cache_control cached \
    call call_id called calling calls can can't cancelled cannot cant case cause caused change changed char \
    character characters chars chat check choice choices chunk chunks citation citations client close closed code \
    codes column combination combined complete completed completion completions conflict conflicting connection \
    consecutive constraint contact contain contained container containers containing contains content content_block \
    contents context continue continued control conversation conversations convert converted correct correctly \
    corresponding corrupt corrupted could couldn't count counts create created creating current currently custom \
    data decode decoded decoding default define defined definition definitions delete deleted denied deprecated \
    describe described description deserialize detail details detected developer dict dictionary did didn't differ \
    different dimensions direct directly disable disabled disallowed discriminator do document documentation \
    documents does doesn't don't done due duplicate duplicated duplicates during each effort either element elements \
    ellipsis embedded empty enable enabled enabling encode encoded encoding encountered encrypted encrypted_content \
    end ended ending endpoint ends ensure entire entity entries entry enum ephemeral error errors escape escaped \
    event events every exact exactly exceed exceeded exceeding exceeds except exception exist existing exists expect \
    expected expects expired explicit explicitly extra fail failed failing fails failure false feature features few \
    field fields file file_data file_id file_url filename files final finish finished finite first float follow \
    followed following follows for forbidden forced form format formats formatted found from fully function \
    function_call function_call_output function_response functioncall functionresponse functions gb generate \
    generated generating generation get gif got greater had handle handled handler has hasn't have haven't having \
    header headers height help here history how however http id identical identifier ids if ignored illegal image \
    image_url images immediately implemented implicit in in_progress include included includes including \
    incompatible incomplete incorrect incorrectly index indices individual inline inline_data input input_audio \
    input_image input_schema input_text input_tokens inputs inside instance instead instruction instructions int \
    integer interleaved internal into invalid invalid_argument invalid_request invalid_request_error is isn't it \
    item item_reference items its itself jpeg jpg json kb key keys keyword kib known label last leading left length \
    letters limit limits line list lists literal make makes malformed mapping marked markers match matched matches \
    matching max max_completion_tokens max_output_tokens max_tokens maximum may mb media media_type mediatype member \
    members message message's messages metadata method mib mime mime_type mimetype min minimum mismatch missing \
    mixed modalities modality mode model model's model_output modified modify more most multimodal multiple must \
    name named names necessary need needed needs neither nested new next no non none nor not nothing null nullable \
    number numbers numeric object objects occurred of off offset ok omit omitted on once only open operation option \
    optional options or order ordering original other others otherwise out output output_text output_tokens outputs \
    outside over overflow own page pages pair paired pairs parallel parallel_tool_calls param parameter parameters \
    params parse parsed parser parsing part partial parts pass passed passing path pattern pdf pending per \
    permission permitted persisted persists pixels place placed please png position positive possible precede \
    preceded preceding prefill prefix presence present preserve preserved previous previous_response_id previously \
    primitive prior process processed processing produce produced prohibited prompt prompts proper properly \
    properties property provide provided provider provides query range rather reached read reading reason reasoning \
    reasoning_content reasoning_effort reasoning_text receive received recent recognized redacted redacted_thinking \
    ref refer reference referenced references refers refusal regular reject rejected related remain remaining remove \
    removed removing repeat repeated replace replaced request requested requests require required requirement \
    requirements requires reserved resolve resolved resource respond response responses result results resume \
    retrieve retrieved return returned role roles same satisfied satisfy schema schemas section send sending sent \
    separate sequence sequences serialize serialized server service session set sets setting shorter should \
    shouldn't signature signatures since single size sizes smaller source specific specification specified specify \
    start started starting starts state status step still stop store stored stream streaming strict string strings \
    struct structure structured sub such sum summaries summary summary_text supplied supply support supported \
    supporting supports surrogate surrogates switch syntax system tag tags temperature template templates terminated \
    text texts than that the then there therefore these thinking thinking_blocks this thought thought_signature \
    thoughts thoughtsignature thread time to token tokens too tool tool_call tool_call_id tool_call_ids tool_calls \
    tool_choice tool_reference tool_result tool_results tool_use tool_use_id tool_uses toolresult tools tooluse \
    top_k top_p trailing translate translation trim trimmed true truncated truncation tuple turn turns type typed \
    types unable unclosed undefined under understand unescaped unexpected unicode union unique unknown unless \
    unmatched unprocessable unrecognized unresolved unset unsupported unterminated until update updated upload \
    uploaded upper upstream url urls usage use used user user's users uses using utf valid validate validated \
    validating validation value valueerror values vector verified verify version versions via video videos violated \
    violates violation was wasn't web_fetch web_search webp well were when where whether which whitespace width will \
    with within without word words would wrong you your zero";

/// The words that are kept of a refusal, in lower case.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownWords {
    words: HashSet<String>,
}

impl KnownWords {
    /// Creates the list of the words of errors, and of these texts, which are in lower case.
    pub(super) fn new<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let is_mark = |letter: char| !(letter.is_alphanumeric() || letter == '_');
        let of_texts = texts
            .flat_map(|text| text.split(is_mark))
            .filter(|word| !word.is_empty());
        let words = ERROR_WORDS.split_ascii_whitespace().chain(of_texts);
        Self {
            words: words.map(ToOwned::to_owned).collect(),
        }
    }

    /// Returns `true` if providers use this word in their errors. It must be in lower case.
    pub(super) fn contains(&self, word: &str) -> bool {
        self.words.contains(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_lists_and_of_texts_are_known() {
        let words = KnownWords::new(["messages 参数非法", "a preceeding toolresult("].into_iter());
        for known in [
            "the",
            "model's",
            "tool_use_id",
            "reasoning_content",
            "preceeding",
            "toolresult",
            "参数非法",
        ] {
            assert!(words.contains(known), "{known}");
        }
        for unknown in ["", "The", "canary", "toolu_01", "password", "antiphon"] {
            assert!(!words.contains(unknown), "{unknown}");
        }
    }

    #[test]
    fn listed_words_are_in_lower_case_and_in_order() {
        let words: Vec<&str> = ERROR_WORDS.split_ascii_whitespace().collect();
        assert!(words.is_sorted_by(|one, next| one < next));
        assert!(words.iter().all(|word| *word == word.to_ascii_lowercase()));
    }
}
