//! The wire format of protobuf: numbered fields of four types.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A message whose fields are not named.
pub(super) struct Message<'b>(Vec<(u64, Field<'b>)>);

enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

// === impl Message ===

impl<'b> Message<'b> {
    /// # Panics
    /// Panics if the bytes are not a message.
    pub(super) fn parse(mut bytes: &'b [u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => Field::Number(fixed(&mut bytes, 8)),
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).expect("a length");
                    Field::Bytes(take(&mut bytes, length))
                }
                5 => Field::Number(fixed(&mut bytes, 4)),
                other => panic!("there is no wire type {other}"),
            };
            fields.push((key >> 3, field));
        }
        Self(fields)
    }

    fn bytes(&self, number: u64) -> impl Iterator<Item = &'b [u8]> {
        self.0.iter().filter_map(move |(found, field)| match field {
            Field::Bytes(bytes) if *found == number => Some(*bytes),
            _ => None,
        })
    }

    pub(super) fn messages(&self, number: u64) -> impl Iterator<Item = Message<'b>> {
        self.bytes(number).map(Message::parse)
    }

    pub(super) fn number(&self, number: u64) -> u64 {
        let found = self.0.iter().find_map(|(found, field)| match field {
            Field::Number(value) if *found == number => Some(*value),
            _ => None,
        });
        found.unwrap_or_default()
    }

    pub(super) fn text(&self, number: u64) -> String {
        let bytes = self.bytes(number).next().unwrap_or_default();
        String::from_utf8(bytes.to_vec()).expect("texts are UTF-8")
    }

    pub(super) fn hex(&self, number: u64) -> String {
        let bytes = self.bytes(number).next().unwrap_or_default();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads a list of `KeyValue`s.
    pub(super) fn attributes(&self, number: u64) -> BTreeMap<String, Value> {
        let pairs = self.messages(number);
        let pairs = pairs.map(|pair| {
            let value = pair.messages(2).map(|value| value.value()).next();
            (pair.text(1), value.unwrap_or_default())
        });
        pairs.collect()
    }

    /// Reads an `AnyValue`.
    pub(super) fn value(&self) -> Value {
        let Some((number, field)) = self.0.first() else {
            return Value::Null;
        };
        match (number, field) {
            (1, _) => self.text(1).into(),
            (2, Field::Number(value)) => (*value != 0).into(),
            (3, Field::Number(value)) => json!(value.cast_signed()),
            (4, Field::Number(value)) => json!(f64::from_bits(*value)),
            (5, Field::Bytes(bytes)) => {
                let elements = Message::parse(bytes);
                let elements = elements.messages(1).map(|element| element.value());
                Value::Array(elements.collect())
            }
            (6, Field::Bytes(bytes)) => {
                let members = Message::parse(bytes).attributes(1);
                Value::Object(Map::from_iter(members))
            }
            (other, _) => panic!("there is no value {other}"),
        }
    }
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> &'b [u8] {
    let (taken, rest) = bytes
        .split_at_checked(length)
        .expect("the message is whole");
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number of more than ten bytes")
}

fn fixed(bytes: &mut &[u8], length: usize) -> u64 {
    let little_endian = take(bytes, length).iter().rev();
    little_endian.fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_type() {
        // 1: 150, 2: "ok", 3: fixed32 5, 4: fixed64 6, 5: { 1: "k", 2: { 3: -5 } }
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 0x02, b'o', b'k', 0x1d, 5, 0, 0, 0, 0x21, 6, 0, 0, 0, 0, 0, 0,
            0, 0x2a, 0x10, 0x0a, 0x01, b'k', 0x12, 0x0b, 0x18, 0xfb, 0xff, 0xff, 0xff, 0xff, 0xff,
            0xff, 0xff, 0xff, 0x01,
        ];
        let message = Message::parse(&bytes);
        assert_eq!(message.number(1), 150);
        assert_eq!(message.text(2), "ok");
        assert_eq!(message.hex(2), "6f6b");
        assert_eq!((message.number(3), message.number(4)), (5, 6));
        assert_eq!(message.attributes(5)["k"], json!(-5));
        assert_eq!(message.text(9), "");
    }
}
