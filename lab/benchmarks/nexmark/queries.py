"""Queries q0 to q23 as Flink SQL over the tables of `events`, with what each of them leaves out of the benchmark's."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUERIES", "NexmarkQuery"]


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """One query.

    Attributes
    ----------
    select : str
        Its statement. Each row of its result has a TIMESTAMP column `moment`; work on rows of the result is done on
        the BIGINT column `worked`.
    moment : str
        What `moment` is: the `event` that the row is a result of, or the `window` of which it is the first moment that
        no earlier row has reported. Latency is the time from it to the row; `none` where rows tell of old events anew.
    feed_us, result_us : int
        Work per bid in the source's chain, and per row of the result before the sink.
    bids : int
        Bids per second of the light load, a tenth of what the work allows or less.
    column : str
        Of a bid, on which the work is done: one that the query reads.
    note : str
        Where it differs from the benchmark's.
    """

    name: str
    subject: str
    select: str
    moment: str = "event"
    feed_us: int = 500
    result_us: int = 0
    bids: int = 150
    column: str = "auction"
    people: int = 1000
    auctions: int = 1000
    note: str = ""


_HOT = """
SELECT window_start, window_end, auction, COUNT(*) AS bids
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY window_start, window_end, auction"""
_ENDED_PRICE = """
SELECT a.id, a.category, a.seller, MAX(a.date_time) AS opened, MAX(b.price) AS price, MAX(b.date_time) AS last_bid
FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
GROUP BY a.id, a.category, a.seller"""
_COUNTS = """
  COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 1000) AS low,
  COUNT(*) FILTER (WHERE price >= 1000 AND price < 5000) AS middle,
  COUNT(*) FILTER (WHERE price >= 5000) AS high,
  COUNT(DISTINCT bidder) AS bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 5000) AS high_bidders,
  COUNT(DISTINCT auction) AS auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 1000) AS low_auctions,
  COUNT(*) AS worked, MAX(date_time) AS moment"""

_ALL = (
    NexmarkQuery(
        "q0",
        "pass through",
        "SELECT auction AS worked, bidder, price, extra, CAST(date_time AS TIMESTAMP(3)) AS moment FROM bid",
    ),
    NexmarkQuery(
        "q1",
        "currency",
        "SELECT auction AS worked, bidder, CAST(price AS DECIMAL(23, 3)) * 0.908 AS euro, extra,"
        " CAST(date_time AS TIMESTAMP(3)) AS moment FROM bid",
        feed_us=2000,
        bids=40,
    ),
    NexmarkQuery(
        "q2",
        "selection",
        "SELECT auction AS worked, price, CAST(date_time AS TIMESTAMP(3)) AS moment FROM bid"
        " WHERE MOD(auction, 123) = 0",
        column="auction",
    ),
    NexmarkQuery(
        "q3",
        "local items: a join whose state grows",
        "SELECT p.name, p.city, p.state, a.id AS worked, GREATEST(a.date_time, p.date_time) AS moment FROM auction a"
        " JOIN person p ON a.seller = p.id WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        result_us=500,
        people=200,
        bids=2000,
    ),
    NexmarkQuery(
        "q4",
        "average of closing prices by category",
        f"SELECT category, AVG(price) AS average, MAX(price) AS worked, MAX(last_bid) AS moment FROM ({_ENDED_PRICE}\n)"
        " GROUP BY category",
        feed_us=100,
        result_us=500,
        bids=100,
    ),
    NexmarkQuery(
        "q5",
        "hot items: a window counted twice and joined",
        f"SELECT c.auction, c.bids AS worked, c.window_end - INTERVAL '2' SECOND AS moment FROM ({_HOT}\n) c JOIN ("
        f"SELECT MAX(bids) AS most, window_start, window_end FROM ({_HOT}\n) GROUP BY window_start, window_end) m"
        " ON c.window_start = m.window_start AND c.window_end = m.window_end WHERE c.bids >= m.most",
        moment="window",
        feed_us=500,
    ),
    NexmarkQuery(
        "q6",
        "average of a seller's last ten closing prices",
        "SELECT seller, AVG(price) OVER (PARTITION BY seller ORDER BY last_bid ROWS BETWEEN 10 PRECEDING AND CURRENT"
        f" ROW) AS average, price AS worked, last_bid AS moment FROM ({_ENDED_PRICE}\n)",
        feed_us=100,
        result_us=500,
        note="rows of the last ten are ordered by the time of the last bid, as it is updated",
        bids=100,
    ),
    NexmarkQuery(
        "q7",
        "highest bid of a window, joined with the bids",
        "SELECT b.auction, b.bidder, b.price AS worked, m.window_start AS moment FROM bid b JOIN ("
        "SELECT MAX(price) AS price, window_start, window_end FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time),"
        " INTERVAL '10' SECOND)) GROUP BY window_start, window_end) m ON b.price = m.price"
        " AND b.date_time BETWEEN m.window_end - INTERVAL '10' SECOND AND m.window_end",
        moment="window",
        column="price",
    ),
    NexmarkQuery(
        "q8",
        "new users who sell, by window",
        "SELECT p.id AS worked, p.name, p.window_start AS moment FROM (SELECT id, name, window_start, window_end FROM"
        " TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY id, name, window_start,"
        " window_end) p JOIN (SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction,"
        " DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end) a"
        " ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
        moment="window",
        result_us=500,
        people=200,
        bids=2000,
    ),
    NexmarkQuery(
        "q9",
        "winning bid of each auction",
        "SELECT id, item_name, bidder, price AS worked, bid_time AS moment FROM (SELECT a.id, a.item_name, b.bidder,"
        " b.price, b.date_time AS bid_time, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time"
        " ASC) AS place FROM auction a JOIN bid b ON a.id = b.auction"
        " AND b.date_time BETWEEN a.date_time AND a.expires) WHERE place <= 1",
        feed_us=100,
        result_us=500,
        bids=100,
    ),
    NexmarkQuery(
        "q10",
        "log with the day and the minute to file it by",
        "SELECT auction AS worked, bidder, price, extra, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day_filed,"
        " DATE_FORMAT(date_time, 'HH:mm') AS minute_filed, date_time AS moment FROM bid",
        note="to a sink that throws rows away instead of files by partition",
    ),
    NexmarkQuery(
        "q11",
        "bids of a user's session",
        "SELECT bidder, COUNT(*) AS worked, window_start AS moment FROM TABLE(SESSION(TABLE bid PARTITION BY bidder,"
        " DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
        moment="window",
        column="bidder",
        people=10000,
    ),
    NexmarkQuery(
        "q12",
        "bids of a user by window of processing time",
        "SELECT bidder, COUNT(*) AS worked, window_start AS moment FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(passed),"
        " INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
        moment="window",
        column="bidder",
        result_us=200,
    ),
    NexmarkQuery(
        "q13",
        "join with a bounded table",
        "SELECT b.auction, b.bidder, b.price AS worked, s.word, b.date_time AS moment FROM bid b JOIN side s"
        " ON MOD(b.auction, 1000) = s.number",
        result_us=300,
        note="the bounded table is generated and joined as it is, not looked up in files",
    ),
    NexmarkQuery(
        "q14",
        "calculation",
        "SELECT auction AS worked, bidder, 0.908 * price AS euro, CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN"
        " 'day' WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'night' ELSE 'other' END AS part,"
        " CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS cs, extra, date_time AS moment FROM bid"
        " WHERE 0.908 * price > 1000 AND 0.908 * price < 5000",
        note="counts characters by built-in functions instead of one of the user's",
    ),
    NexmarkQuery(
        "q15",
        "counts of a day",
        f"SELECT DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day_counted,{_COUNTS}\nFROM bid"
        " GROUP BY DATE_FORMAT(date_time, 'yyyy-MM-dd')",
        feed_us=200,
        result_us=300,
        bids=100,
    ),
    NexmarkQuery(
        "q16",
        "counts of a channel's day",
        f"SELECT channel, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day_counted,{_COUNTS}\nFROM bid"
        " GROUP BY channel, DATE_FORMAT(date_time, 'yyyy-MM-dd')",
        feed_us=200,
        result_us=300,
        bids=100,
    ),
    NexmarkQuery(
        "q17",
        "statistics of an auction's day",
        "SELECT auction, DATE_FORMAT(date_time, 'yyyy-MM-dd') AS day_counted, COUNT(*) AS bids,"
        " COUNT(*) FILTER (WHERE price < 1000) AS low, COUNT(*) FILTER (WHERE price >= 5000) AS high,"
        " MIN(price) AS least, MAX(price) AS most, AVG(price) AS average, SUM(price) AS worked,"
        " MAX(date_time) AS moment FROM bid GROUP BY auction, DATE_FORMAT(date_time, 'yyyy-MM-dd')",
        feed_us=200,
        result_us=300,
        bids=100,
    ),
    NexmarkQuery(
        "q18",
        "a user's last bid on each auction",
        "SELECT auction, bidder, price AS worked, channel, date_time AS moment FROM (SELECT *, ROW_NUMBER() OVER"
        " (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid) WHERE place <= 1",
        feed_us=200,
        result_us=300,
        people=40,
        auctions=40,
        bids=100,
    ),
    NexmarkQuery(
        "q19",
        "ten highest bids of each auction",
        "SELECT auction, bidder, price AS worked, place, date_time AS moment FROM (SELECT *, ROW_NUMBER() OVER"
        " (PARTITION BY auction ORDER BY price DESC) AS place FROM bid) WHERE place <= 10",
        moment="none",
        feed_us=200,
        result_us=300,
    ),
    NexmarkQuery(
        "q20",
        "bids on auctions of a category",
        "SELECT b.auction, b.bidder, b.price AS worked, a.item_name, a.seller,"
        " GREATEST(b.date_time, a.date_time) AS moment FROM bid b"
        " JOIN auction a ON b.auction = a.id WHERE a.category = 10",
        feed_us=200,
        result_us=100,
        auctions=5000,
    ),
    NexmarkQuery(
        "q21",
        "id of a channel",
        "SELECT auction AS worked, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN"
        " LOWER(channel) = 'google' THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu'"
        " THEN '3' ELSE REGEXP_EXTRACT(url, '(&|^|[?])channel_id=([^&]*)', 2) END AS channel_id, date_time AS moment"
        " FROM bid WHERE LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"
        " OR REGEXP_EXTRACT(url, '(&|^|[?])channel_id=([^&]*)', 2) IS NOT NULL",
    ),
    NexmarkQuery(
        "q22",
        "parts of an address",
        "SELECT auction AS worked, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS first_part,"
        " SPLIT_INDEX(url, '/', 4) AS second_part, SPLIT_INDEX(url, '/', 5) AS third_part, date_time AS moment"
        " FROM bid",
    ),
    NexmarkQuery(
        "q23",
        "bids with auction and seller: two joins",
        "SELECT b.auction, b.bidder, b.price AS worked, a.item_name, p.name,"
        " GREATEST(b.date_time, a.date_time, p.date_time) AS moment FROM bid b"
        " JOIN auction a ON b.auction = a.id JOIN person p ON a.seller = p.id",
        feed_us=200,
        result_us=100,
        people=2000,
        auctions=20000,
    ),
)

QUERIES = {query.name: query for query in _ALL}
