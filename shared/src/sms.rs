//! How many segments an SMS takes: what providers limit and charge.

/// How the characters of a text travel. One character outside the GSM alphabet turns the whole text into UCS-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// The GSM 7-bit default alphabet and its extension table (3GPP TS 23.038, 6.2.1), in septets: 160 in a single SMS,
    /// 153 in each of several.
    Gsm7,
    /// UTF-16 code units: 70 in a single SMS, 67 in each of several.
    Ucs2,
}

impl Encoding {
    /// The units of an SMS that travels alone: 140 octets, 3GPP TS 23.040.
    const fn single(self) -> usize {
        match self {
            Self::Gsm7 => 160,
            Self::Ucs2 => 70,
        }
    }

    /// The units of one part of several: the header that joins them takes 6 of the 140 octets, 3GPP TS 23.040, 9.2.3.24.1.
    const fn part(self) -> usize {
        match self {
            Self::Gsm7 => 153,
            Self::Ucs2 => 67,
        }
    }

    /// The units of a character: 1 or 2.
    fn width(self, c: char) -> usize {
        match self {
            Self::Gsm7 => septets(c).unwrap_or(1),
            Self::Ucs2 => c.len_utf16(),
        }
    }
}

/// The encoding that holds the text as it is given: nothing is transliterated, composed or trimmed, and no national
/// language table is used.
#[must_use]
pub fn encoding(text: &str) -> Encoding {
    if text.chars().all(|c| septets(c).is_some()) { Encoding::Gsm7 } else { Encoding::Ucs2 }
}

/// The segments of a text, at least 1: an empty SMS is one, too.
///
/// A character of two units is never cut, so a part may stay one unit short. The count has no upper end, although an
/// SMS has at most 255 parts (one octet, 3GPP TS 23.040) and providers take fewer. A provider that replaces characters
/// first (Twilio's Smart Encoding) may send fewer segments, one that keeps emoji of several characters whole may send
/// more.
#[must_use]
pub fn segments(text: &str) -> u32 {
    let encoding = encoding(text);
    match parts(text, encoding, encoding.single()) {
        1 => 1,
        _ => parts(text, encoding, encoding.part()),
    }
}

/// What a text to so many recipients costs in segments, for [`Message::cost`](crate::message::Message::cost); `None`
/// above [`u32::MAX`].
///
/// ```
/// # use sendslot_shared::{message::Message, sms};
/// let text = "Doors open at 19:00. Tickets: 20 €";
/// assert_eq!(sms::cost(text, 3), Some(3));
/// let message = Message::new("sms", "doors-17", text).cost(sms::segments(text));
/// ```
#[must_use]
pub fn cost(text: &str, recipients: u32) -> Option<u32> {
    segments(text).checked_mul(recipients)
}

/// How many parts of `limit` units hold the text, filled one after the other.
fn parts(text: &str, encoding: Encoding, limit: usize) -> u32 {
    let (mut parts, mut used) = (1_u32, 0);
    for width in text.chars().map(|c| encoding.width(c)) {
        if used + width > limit {
            parts = parts.saturating_add(1);
            used = 0;
        }
        used += width;
    }
    parts
}

/// The septets of a character, 2 in the extension table; `None` outside the GSM alphabet.
///
/// Capital `Ç` is in it and `ç` is not, against some published tables.
fn septets(c: char) -> Option<usize> {
    match c {
        '\n' | '\r' | ' '..='Z' | '_' | 'a'..='z' => Some(1),
        '¡' | '£' | '¤' | '¥' | '§' | '¿' | 'Ä' | 'Å' | 'Æ' | 'Ç' | 'É' | 'Ñ' | 'Ö' | 'Ø' | 'Ü' | 'ß' => {
            Some(1)
        }
        'à' | 'ä' | 'å' | 'æ' | 'è' | 'é' | 'ì' | 'ñ' | 'ò' | 'ö' | 'ø' | 'ù' | 'ü' => Some(1),
        'Γ' | 'Δ' | 'Θ' | 'Λ' | 'Ξ' | 'Π' | 'Σ' | 'Φ' | 'Ψ' | 'Ω' => Some(1),
        '\u{c}' | '^' | '{' | '}' | '\\' | '[' | '~' | ']' | '|' | '€' => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The default alphabet in the order of its codes, 0x00 to 0x7F; 0x1B is the escape to the extension table.
    const CHART: &str = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞ\u{1b}ÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?\
                         ¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà";
    const EXTENSION: [(char, u16); 10] = [
        ('\u{c}', 0x0a),
        ('^', 0x14),
        ('{', 0x28),
        ('}', 0x29),
        ('\\', 0x2f),
        ('[', 0x3c),
        ('~', 0x3d),
        (']', 0x3e),
        ('|', 0x40),
        ('€', 0x65),
    ];

    /// The codes of a character; `None` outside the GSM alphabet.
    fn gsm_codes(c: char) -> Option<Vec<u16>> {
        let basic = CHART.chars().position(|k| k == c && k != '\u{1b}').map(|code| vec![code as u16]);
        basic.or_else(|| EXTENSION.iter().find(|(k, _)| *k == c).map(|(_, code)| vec![0x1b, *code]))
    }

    /// Encodes every character and lays the codes out part by part.
    fn laid_out(text: &str) -> usize {
        let gsm: Option<Vec<Vec<u16>>> = text.chars().map(gsm_codes).collect();
        let (single, part) = if gsm.is_some() { (160, 153) } else { (70, 67) };
        let codes = gsm.unwrap_or_else(|| text.chars().map(|c| c.encode_utf16(&mut [0; 2]).to_vec()).collect());
        if codes.concat().len() <= single {
            return 1;
        }
        let mut parts: Vec<Vec<u16>> = vec![vec![]];
        for code in codes {
            if parts.last().unwrap().len() + code.len() > part {
                parts.push(vec![]);
            }
            parts.last_mut().unwrap().extend(code);
        }
        parts.len()
    }

    /// A text of runs of `chars`, up to about five parts long.
    fn runs(chars: &'static str) -> impl Strategy<Value = String> {
        let chars: Vec<char> = chars.chars().collect();
        prop::collection::vec((prop::sample::select(chars), 1_usize..80), 0..10)
            .prop_map(|runs| runs.into_iter().map(|(c, n)| c.to_string().repeat(n)).collect())
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![runs("aZ@Çé\n[€~\u{c}"), runs("aж[€\u{1F60E}\u{301}`"), runs("\u{1F60E}ж"), any::<String>()]
    }

    // The values of these tests come from message-segment-calculator, sms-counter-php, gosmpp and gsm-charset-utils.

    #[test]
    fn a_single_sms_holds_160_septets_and_a_part_153() {
        for (n, want) in [(160, 1), (161, 2), (306, 2), (307, 3)] {
            assert_eq!(segments(&"a".repeat(n)), want, "{n}");
        }
    }

    #[test]
    fn an_escaped_pair_never_straddles_two_parts() {
        let around = |before, after| format!("{}[{}", "a".repeat(before), "a".repeat(after));
        assert_eq!(segments(&around(152, 152)), 3);
        assert_eq!(segments(&around(152, 151)), 2);
        assert_eq!(segments(&"]".repeat(153)), 3);
        assert_eq!(segments(&"]".repeat(152)), 2);
    }

    #[test]
    fn a_euro_takes_two_septets() {
        assert_eq!(segments(&"€".repeat(80)), 1);
        assert_eq!(segments(&"€".repeat(81)), 2);
    }

    #[test]
    fn a_surrogate_pair_never_straddles_two_parts() {
        for (n, want) in [(35, 1), (36, 2), (66, 2), (70, 3)] {
            assert_eq!(segments(&"\u{1F60E}".repeat(n)), want, "{n}");
        }
        let side = "ж".repeat(66);
        assert_eq!(segments(&format!("{side}\u{1F60E}{side}")), 3);
    }

    #[test]
    fn a_single_sms_holds_70_cyrillic_letters_and_a_part_67() {
        for (n, want) in [(70, 1), (71, 2), (134, 2), (135, 3)] {
            assert_eq!(segments(&"ж".repeat(n)), want, "{n}");
        }
    }

    #[test]
    fn one_character_outside_the_alphabet_decides() {
        let cases = [
            ("Leçon", Encoding::Ucs2),
            ("LeÇon", Encoding::Gsm7),
            ("caf\u{e9}", Encoding::Gsm7),
            ("cafe\u{301}", Encoding::Ucs2),
            ("`", Encoding::Ucs2),
        ];
        for (text, want) in cases {
            assert_eq!(encoding(text), want, "{text}");
        }
    }

    #[test]
    fn a_line_end_of_two_characters_counts_as_two() {
        assert_eq!(segments(&format!("{}\r\n", "a".repeat(159))), 2);
    }

    // End of those values.

    #[test]
    fn an_empty_text_is_one_segment() {
        assert_eq!(segments(""), 1);
        assert_eq!(encoding(""), Encoding::Gsm7);
    }

    #[test]
    fn the_alphabet_is_the_chart_and_nothing_else() {
        let with = |n| (char::MIN..=char::MAX).filter(move |c| septets(*c) == Some(n)).collect::<Vec<_>>();
        let mut basic: Vec<char> = CHART.chars().filter(|c| *c != '\u{1b}').collect();
        basic.sort_unstable();
        assert_eq!((CHART.chars().count(), basic.len()), (128, 127));
        assert_eq!(with(1), basic);
        let mut extension = EXTENSION.map(|(c, _)| c);
        extension.sort_unstable();
        assert_eq!(with(2), extension);
    }

    #[test]
    fn long_texts_are_counted_and_costs_beyond_u32_are_none() {
        let text = "a".repeat(1_530_000);
        assert_eq!(segments(&text), 10_000);
        assert_eq!(cost(&text, 429_496), Some(4_294_960_000));
        assert_eq!(cost(&text, 429_497), None);
        assert_eq!(cost("hello", 0), Some(0));
    }

    proptest! {
        #[test]
        fn segments_are_what_laying_out_every_code_gives(text in any_text()) {
            prop_assert_eq!(segments(&text) as usize, laid_out(&text));
        }

        // Also where the encoding changes: 67 characters fill a UCS-2 part, and a full GSM part holds 76 or more.
        #[test]
        fn appending_never_lowers_the_count(text in any_text(), more in any_text()) {
            prop_assert!(segments(&(text.clone() + &more)) >= segments(&text));
        }

        #[test]
        fn a_cost_is_recipients_times_segments(text in any_text(), recipients in any::<u32>()) {
            let want = u64::from(segments(&text)) * u64::from(recipients);
            prop_assert_eq!(cost(&text, recipients), u32::try_from(want).ok());
        }
    }
}
