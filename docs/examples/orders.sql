-- A job to connect to: orders of a generator, counted by customer in windows of 5 s.
-- Without chaining every operator tells its own busy time; a generator, as other old sources do, tells none: looks at
-- its threads tell what an event costs, the sooner the more events come.
SET 'pipeline.name' = 'orders';
SET 'pipeline.operator-chaining.enabled' = 'false';

CREATE TEMPORARY TABLE orders (
  customer INT,
  amount INT,
  placed AS LOCALTIMESTAMP,
  WATERMARK FOR placed AS placed - INTERVAL '1' SECOND
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '100000',
  'fields.customer.min' = '1', 'fields.customer.max' = '50',
  'fields.amount.min' = '1', 'fields.amount.max' = '100'
);

CREATE TEMPORARY TABLE revenue (customer INT, closed TIMESTAMP(3), total INT)
WITH ('connector' = 'blackhole');

INSERT INTO revenue
SELECT customer, window_end, SUM(amount)
FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(placed), INTERVAL '5' SECOND))
WHERE amount > 10
GROUP BY customer, window_start, window_end;
