"""Tables of events: people, auctions and bids by the datagen connector, in the proportions that Nexmark has."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EventFeed", "event_tables"]

#: Of 50 events: people, auctions, bids.
_SHARES = {"person": 1, "auction": 3, "bid": 46}
_WATERMARK_S = 4
_FEEDS = {
    "person": """
CREATE TEMPORARY TABLE person_feed (
  id BIGINT, name STRING, email STRING, city_number INT, state_number INT, date_time TIMESTAMP(3),
  WATERMARK FOR date_time AS date_time - INTERVAL '{watermark}' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.id.min' = '1', 'fields.id.max' = '{people}', 'fields.name.length' = '12', 'fields.email.length' = '18',
  'fields.city_number.min' = '0', 'fields.city_number.max' = '9',
  'fields.state_number.min' = '0', 'fields.state_number.max' = '5');
CREATE TEMPORARY VIEW person AS SELECT id, name, email, CONCAT('city ', CAST(city_number AS STRING)) AS city,
  CASE state_number WHEN 0 THEN 'OR' WHEN 1 THEN 'ID' WHEN 2 THEN 'CA' WHEN 3 THEN 'WA' WHEN 4 THEN 'AZ' ELSE 'WY' END
    AS state,
  date_time FROM person_feed;
""",
    "auction": """
CREATE TEMPORARY TABLE auction_feed (
  id BIGINT, item_name STRING, initial_bid BIGINT, reserve BIGINT, seller BIGINT, category BIGINT,
  date_time TIMESTAMP(3), expires AS date_time + INTERVAL '20' SECOND,
  WATERMARK FOR date_time AS date_time - INTERVAL '{watermark}' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.id.min' = '1', 'fields.id.max' = '{auctions}', 'fields.item_name.length' = '16',
  'fields.initial_bid.min' = '1', 'fields.initial_bid.max' = '1000',
  'fields.reserve.min' = '1', 'fields.reserve.max' = '2000',
  'fields.seller.min' = '1', 'fields.seller.max' = '{people}',
  'fields.category.min' = '10', 'fields.category.max' = '14');
CREATE TEMPORARY VIEW auction AS SELECT * FROM auction_feed;
""",
    "bid": """
CREATE TEMPORARY TABLE bid_feed (
  auction BIGINT, bidder BIGINT, price BIGINT, channel_number INT, item BIGINT, extra STRING, date_time TIMESTAMP(3),
  passed AS PROCTIME(),
  WATERMARK FOR date_time AS date_time - INTERVAL '{watermark}' SECOND
) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.auction.min' = '1', 'fields.auction.max' = '{auctions}',
  'fields.bidder.min' = '1', 'fields.bidder.max' = '{people}',
  'fields.price.min' = '1', 'fields.price.max' = '10000',
  'fields.channel_number.min' = '0', 'fields.channel_number.max' = '4',
  'fields.item.min' = '1', 'fields.item.max' = '1000', 'fields.extra.length' = '40');
CREATE TEMPORARY VIEW bid AS SELECT {auction} AS auction, {bidder} AS bidder, {price} AS price,
  CASE channel_number WHEN 0 THEN 'Apple' WHEN 1 THEN 'Google' WHEN 2 THEN 'Facebook' WHEN 3 THEN 'Baidu'
    ELSE CONCAT('channel-', CAST(item AS STRING)) END AS channel,
  CONCAT('https://auctions.example/a/', CAST(auction AS STRING), '/item/', CAST(item AS STRING),
    '?channel_id=', CAST(item AS STRING)) AS url,
  extra, date_time, passed FROM bid_feed;
""",
}


@dataclass(frozen=True, slots=True)
class EventFeed:
    """Load and work of a query's events.

    `bids` is events of bids per second; people and auctions come in proportion, one a second at least. Work is done
    on `column` of each bid in the view that every reader reads, so that it is chained to the source.
    """

    bids: int
    work: str = "compute"  #: or park
    work_us: int = 0
    column: str = "auction"
    people: int = 1000
    auctions: int = 1000

    def rate(self, name: str) -> int:
        """Rows per second of `person`, `auction` or `bid`."""
        return max(1, round(self.bids * _SHARES[name] / _SHARES["bid"]))


def event_tables(feed: EventFeed) -> str:
    """Statements that make the tables of events and their views; they start nothing."""
    columns = {name: name for name in ("auction", "bidder", "price")}
    if feed.work_us:
        columns[feed.column] = f"{feed.work}({feed.column}, {feed.work_us})"
    return "".join(
        text.format(rate=feed.rate(name), watermark=_WATERMARK_S, people=feed.people, auctions=feed.auctions, **columns)
        for name, text in _FEEDS.items()
    )
