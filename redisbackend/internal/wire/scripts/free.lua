-- free: releases a lock for which no other session waits, if the record is still as the session remembers it. It
-- stands alone, without common.lua, as pass does.
--
-- KEYS  1 hold  2 record  3 queue
-- ARGV  1 the record as it was left  2 field of the hold
-- Returns  1 released; the record stays   0 nothing is changed: the record is another one, the hold is gone, or
--          sessions wait; release then does what is right
-- Keeps    a lock that is waited for is not left free.
-- Twice    the second run finds no hold, or another record.

if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('LINDEX', KEYS[3], '0') then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[2])
