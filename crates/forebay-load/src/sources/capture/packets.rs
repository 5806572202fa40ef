//! Turns packets into columns: time, length, and endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, StringBuilder, TimestampNanosecondBuilder, UInt8Builder, UInt16Builder,
    UInt32Builder, UInt64Builder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::pcapng::{Block, parse_block_be, parse_block_le};
use pcap_parser::{parse_pcap_frame, parse_pcap_frame_be};

use super::walk::{Framing, word};

/// The column of the packets' bytes.
const DATA: &str = "data";

/// Returns the columns of a capture, with or without the packets' bytes.
pub fn columns(packet_data: bool) -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::from("UTC")));
    let mut fields = vec![
        Field::new("time", time, true),
        Field::new("packet", DataType::UInt64, false),
        Field::new("interface", DataType::UInt32, false),
        Field::new("protocol", DataType::UInt8, true),
        Field::new("source", DataType::Utf8, true),
        Field::new("source_port", DataType::UInt16, true),
        Field::new("destination", DataType::Utf8, true),
        Field::new("destination_port", DataType::UInt16, true),
        Field::new("captured_bytes", DataType::UInt32, false),
        Field::new("wire_bytes", DataType::UInt32, false),
    ];
    if packet_data {
        fields.push(Field::new(DATA, DataType::Binary, false));
    }
    Arc::new(Schema::new(fields))
}

/// The common properties of the packets of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The number of the link's type in the capture formats.
    link: i32,
    units_per_second: u128,
    offset_s: i64,
    /// The most bytes captured of a packet; 0 for all.
    most_bytes: u32,
}

impl Interface {
    /// Records a section's header or an interface's description.
    pub fn describe(
        block: &[u8],
        framing: &Framing,
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), String> {
        match parse(block, framing)? {
            Block::SectionHeader(_) => interfaces.clear(),
            Block::InterfaceDescription(block) => {
                let (exponent, binary) = (block.if_tsresol & 0x7f, block.if_tsresol & 0x80 != 0);
                let base: u128 = if binary { 2 } else { 10 };
                let units_per_second = base.checked_pow(u32::from(exponent));
                let units_per_second = units_per_second.filter(|units| *units <= 1 << 64);
                interfaces.push(Interface {
                    link: block.linktype.0,
                    units_per_second: units_per_second
                        .ok_or("an interface with times finer than 64 bits say")?,
                    offset_s: block.if_tsoffset,
                    most_bytes: block.snaplen,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns nanoseconds since 1970; `None` if they exceed 64 bits.
    fn time(&self, high: u32, low: u32) -> Option<i64> {
        let units = u128::from(high) << 32 | u128::from(low);
        let nanoseconds = units * 1_000_000_000 / self.units_per_second;
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        i64::try_from(i128::try_from(nanoseconds).ok()? + offset).ok()
    }
}

fn parse<'b>(block: &'b [u8], framing: &Framing) -> Result<Block<'b>, String> {
    let parsed = match framing {
        Framing::Pcapng { big_endian: true } => parse_block_be(block),
        _ => parse_block_le(block),
    };
    match parsed {
        Ok((_, block)) => Ok(block),
        Err(error) => Err(format!("a block that cannot be read: {error:?}")
            .chars()
            .take(120)
            .collect()),
    }
}

/// A packet as stored in its record.
struct Packet<'a> {
    time: Option<i64>,
    interface: u32,
    link: i32,
    wire_bytes: u32,
    data: &'a [u8],
}

/// The endpoints of a packet.
#[derive(Default)]
struct Flow {
    protocol: Option<u8>,
    addresses: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
}

/// A builder of packet columns.
pub struct Packets {
    schema: SchemaRef,
    /// The positions of the requested columns.
    columns: Vec<usize>,
    time: TimestampNanosecondBuilder,
    packet: UInt64Builder,
    interface: UInt32Builder,
    protocol: UInt8Builder,
    source: StringBuilder,
    source_port: UInt16Builder,
    destination: StringBuilder,
    destination_port: UInt16Builder,
    captured_bytes: UInt32Builder,
    wire_bytes: UInt32Builder,
    data: Option<BinaryBuilder>,
}

impl Packets {
    pub fn new(schema: &SchemaRef, columns: &[usize]) -> Self {
        let data = schema.index_of(DATA).is_ok();
        Self {
            schema: schema.clone(),
            columns: columns.to_vec(),
            time: TimestampNanosecondBuilder::new().with_timezone("UTC"),
            packet: UInt64Builder::new(),
            interface: UInt32Builder::new(),
            protocol: UInt8Builder::new(),
            source: StringBuilder::new(),
            source_port: UInt16Builder::new(),
            destination: StringBuilder::new(),
            destination_port: UInt16Builder::new(),
            captured_bytes: UInt32Builder::new(),
            wire_bytes: UInt32Builder::new(),
            data: data.then(BinaryBuilder::new),
        }
    }

    /// Adds a packet record, the file's `number`th, from 0.
    pub fn push(
        &mut self,
        record: &[u8],
        framing: &Framing,
        interfaces: &[Interface],
        number: u64,
    ) -> Result<(), String> {
        let packet = match framing {
            Framing::Pcap { .. } => pcap_packet(record, framing)?,
            Framing::Pcapng { big_endian } => {
                pcapng_packet(record, framing, interfaces, *big_endian)?
            }
        };
        let flow = flow(packet.link, packet.data);
        self.time.append_option(packet.time);
        self.packet.append_value(number + 1);
        self.interface.append_value(packet.interface);
        self.protocol.append_option(flow.protocol);
        let text = |address: IpAddr| address.to_string();
        self.source
            .append_option(flow.addresses.map(|(from, _)| text(from)));
        self.destination
            .append_option(flow.addresses.map(|(_, to)| text(to)));
        self.source_port
            .append_option(flow.ports.map(|(from, _)| from));
        self.destination_port
            .append_option(flow.ports.map(|(_, to)| to));
        self.captured_bytes.append_value(packet.data.len() as u32);
        self.wire_bytes.append_value(packet.wire_bytes);
        if let Some(data) = &mut self.data {
            data.append_value(packet.data);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(self.time.finish()),
            Arc::new(self.packet.finish()),
            Arc::new(self.interface.finish()),
            Arc::new(self.protocol.finish()),
            Arc::new(self.source.finish()),
            Arc::new(self.source_port.finish()),
            Arc::new(self.destination.finish()),
            Arc::new(self.destination_port.finish()),
            Arc::new(self.captured_bytes.finish()),
            Arc::new(self.wire_bytes.finish()),
        ];
        if let Some(mut data) = self.data {
            arrays.push(Arc::new(data.finish()));
        }
        RecordBatch::try_new(self.schema, arrays)?.project(&self.columns)
    }
}

fn pcap_packet<'r>(record: &'r [u8], framing: &Framing) -> Result<Packet<'r>, String> {
    let Framing::Pcap {
        big_endian,
        nanoseconds,
        link,
        ..
    } = *framing
    else {
        return Err("it is no pcap".to_owned());
    };
    let parsed = match big_endian {
        true => parse_pcap_frame_be(record),
        false => parse_pcap_frame(record),
    };
    let (_, frame) = parsed.map_err(|_| "a packet that cannot be read".to_owned())?;
    let scale = if nanoseconds { 1 } else { 1000 };
    Ok(Packet {
        time: Some(i64::from(frame.ts_sec) * 1_000_000_000 + i64::from(frame.ts_usec) * scale),
        interface: 0,
        link,
        wire_bytes: frame.origlen,
        data: frame.data,
    })
}

fn pcapng_packet<'r>(
    record: &'r [u8],
    framing: &Framing,
    interfaces: &[Interface],
    big_endian: bool,
) -> Result<Packet<'r>, String> {
    let of = |number: u32| {
        let found = interfaces.get(number as usize);
        found.ok_or_else(|| format!("a packet of interface {number}, which was not described"))
    };
    match parse(record, framing)? {
        Block::EnhancedPacket(block) => {
            let interface = of(block.if_id)?;
            let data = block.data.get(..block.caplen as usize);
            Ok(Packet {
                time: interface.time(block.ts_high, block.ts_low),
                interface: block.if_id,
                link: interface.link,
                wire_bytes: block.origlen,
                data: data.ok_or("a packet longer than its block")?,
            })
        }
        Block::SimplePacket(block) => {
            let interface = of(0)?;
            let most = match interface.most_bytes {
                0 => u32::MAX,
                most => most,
            };
            let captured = block.origlen.min(most) as usize;
            let data = block.data.get(..captured);
            Ok(Packet {
                time: None,
                interface: 0,
                link: interface.link,
                wire_bytes: block.origlen,
                data: data.ok_or("a packet longer than its block")?,
            })
        }
        _ => old_packet(record, interfaces, big_endian),
    }
}

/// Reads the obsolete packet block, which the enhanced one replaced and some tools still write.
fn old_packet<'r>(
    record: &'r [u8],
    interfaces: &[Interface],
    big_endian: bool,
) -> Result<Packet<'r>, String> {
    let field = |at| word(record, at, big_endian);
    let both = field(8);
    let number = if big_endian {
        both >> 16
    } else {
        both & 0xffff
    };
    let interface = interfaces
        .get(number as usize)
        .ok_or_else(|| format!("a packet of interface {number}, which was not described"))?;
    let data = record.get(28..record.len() - 4);
    let data = data.and_then(|data| data.get(..field(20) as usize));
    Ok(Packet {
        time: interface.time(field(12), field(16)),
        interface: number,
        link: interface.link,
        wire_bytes: field(24),
        data: data.ok_or("a packet longer than its block")?,
    })
}

/// Parses a packet as far as its link type is known and its bytes suffice.
fn flow(link: i32, data: &[u8]) -> Flow {
    const NULL: i32 = 0;
    const ETHERNET: i32 = 1;
    const LINUX_SLL: i32 = 113;
    const LINUX_SLL2: i32 = 276;
    let ip = |data| LaxSlicedPacket::from_ip(data).ok();
    match link {
        ETHERNET => LaxSlicedPacket::from_ethernet(data).ok().map(of_lax),
        // Raw IP has several numbers, which differ by system.
        12 | 14 | 101 | 228 | 229 => ip(data).map(of_lax),
        // The family's four bytes are in the byte order of the capturing system.
        NULL | 108 => data.get(4..).and_then(ip).map(of_lax),
        LINUX_SLL => cooked(data, 14, 16),
        LINUX_SLL2 => cooked(data, 0, 20),
        _ => None,
    }
    .unwrap_or_default()
}

/// Parses Linux's headers for captures of any interface: the ether type at `at`, `length` bytes in
/// all.
fn cooked(data: &[u8], at: usize, length: usize) -> Option<Flow> {
    let ether_type = data.get(at..)?.first_chunk()?;
    let ether_type = EtherType(u16::from_be_bytes(*ether_type));
    let packet = LaxSlicedPacket::from_ether_type(ether_type, data.get(length..)?);
    Some(of_lax(packet))
}

fn of_lax(packet: LaxSlicedPacket<'_>) -> Flow {
    let mut flow = Flow::default();
    match &packet.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            flow.addresses = Some((
                header.source_addr().into(),
                header.destination_addr().into(),
            ));
            flow.protocol = Some(ip.payload().ip_number.0);
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            flow.addresses = Some((
                header.source_addr().into(),
                header.destination_addr().into(),
            ));
            flow.protocol = Some(ip.payload().ip_number.0);
        }
        _ => {}
    }
    flow.ports = match &packet.transport {
        Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
        Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
        _ => None,
    };
    flow
}
