//! Mappings of providers whose webhooks are public.

use serde::{Deserialize, Serialize};

use crate::config::{Format, ProviderConfig};

/// A provider whose webhook is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// SendGrid's Event Webhook: our IDs as custom arguments `sendslot_id` and `sendslot_budget`, else `sg_message_id`, whose
    /// beginning is what the API answered as `X-Message-Id`.
    Sendgrid,
    /// Twilio's status callbacks: our IDs in the callback's URL as `id` and `budget`, else `MessageSid`.
    Twilio,
    /// WhatsApp's Cloud API: our ID as `biz_opaque_callback_data`, else the message's `id`.
    Whatsapp,
    /// Amazon SES by SNS (events of a configuration set, or notifications of an identity): our IDs as tags `sendslot_id` and
    /// `sendslot_budget` or headers `X-Sendslot-Id` and `X-Sendslot-Budget`, else `messageId`.
    Ses,
}

impl Preset {
    /// The preset's own settings, beneath those of the file.
    pub(crate) fn settings(self) -> ProviderConfig {
        let list = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect());
        let json = |events: &str| ProviderConfig {
            format: Some(Format::Json),
            events: Some(events.to_owned()),
            // providers add kinds of events; only the ends of a send are receipts
            ignored: list(&["*"]),
            ..ProviderConfig::default()
        };
        match self {
            Self::Sendgrid => ProviderConfig {
                budget_at: list(&["/sendslot_budget", "query:budget"]),
                id: list(&["/sendslot_id"]),
                provider_id: list(&["/sg_message_id"]),
                provider_id_until: list(&[".filter", ".recv", "."]),
                status: list(&["/event"]),
                at: list(&["/timestamp"]),
                delivered: list(&["delivered"]),
                undelivered: list(&["bounce", "dropped"]),
                ..json("/*")
            },
            Self::Twilio => ProviderConfig {
                format: Some(Format::Form),
                budget_at: list(&["query:budget"]),
                id: list(&["query:id"]),
                provider_id: list(&["MessageSid", "SmsSid"]),
                status: list(&["MessageStatus", "SmsStatus"]),
                delivered: list(&["delivered", "read"]),
                undelivered: list(&["undelivered", "failed"]),
                ignored: list(&["*"]),
                ..ProviderConfig::default()
            },
            Self::Whatsapp => ProviderConfig {
                budget_at: list(&["query:budget"]),
                id: list(&["/biz_opaque_callback_data"]),
                provider_id: list(&["/id"]),
                status: list(&["/status"]),
                at: list(&["/timestamp"]),
                delivered: list(&["delivered", "read", "played"]),
                undelivered: list(&["failed"]),
                ..json("/entry/*/changes/*/value/statuses/*")
            },
            Self::Ses => ProviderConfig {
                unwrap: Some("/Message".to_owned()),
                budget_at: list(&[
                    "/mail/tags/sendslot_budget/0",
                    "/mail/headers/name=X-Sendslot-Budget/value",
                    "query:budget",
                ]),
                id: list(&["/mail/tags/sendslot_id/0", "/mail/headers/name=X-Sendslot-Id/value"]),
                provider_id: list(&["/mail/messageId"]),
                status: list(&["/eventType", "/notificationType"]),
                at: list(&["/delivery/timestamp", "/bounce/timestamp", "/mail/timestamp"]),
                delivered: list(&["Delivery"]),
                undelivered: list(&["Bounce", "Reject", "Rendering Failure"]),
                ..json("")
            },
        }
    }
}
