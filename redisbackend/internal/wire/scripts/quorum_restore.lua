-- quorum_restore: puts back a hold that a majority of the nodes has and this one has lost: its lease ended here while
-- the node was cut off, or the node forgot it.
--
-- KEYS  1 hold  2 record
-- ARGV  1 session  2 epoch of the hold  3 owner  4 holds  5 lease, ms
--       6 not after: Redis time, us, from which this copy is refused
--       7 first token, 8 last token of its block  9 seconds that the record is kept
-- Returns  {code, now}   1 the epoch has the lock here   2 another session has it
--   3 stale: a later epoch of the session was here, or this one was given up or taken away
--   4 late: not after has passed   or the error FARTOKEN, and nothing is touched
-- Keeps    another session's hold; the last token never falls, and is not below the block. The record does not show
--          whether a hold ended or was released. So the session sends no run after the release, and a copy that may
--          still be under way then finds a tombstone or is late (replica.go).
-- Twice    the second run finds the hold there.
-- Late     after its not after it does nothing; nor before, if the hold was given up, which leaves a tombstone.

local session, epoch = ARGV[1], tonumber(ARGV[2])
local first, upto = tonumber(ARGV[7]), tonumber(ARGV[8])
local RESTORED, HELD, STALE, LATE = 1, 2, 3, 4

local now = clock()
if now > tonumber(ARGV[6]) then return {LATE, now} end
local rec, field, mine = look(KEYS, session)
if rec.err then return rec end
if rec.tombs ~= '' and entombed(rec, session, epoch, now) then return {STALE, now} end
local last = rec.session == session and tonumber(rec.epoch) or 0
if epoch < last then return {STALE, now} end
if field and not mine then return {HELD, now} end
if mine and epoch == last then return {RESTORED, now} end
local refused = far(rec, now, 0, upto)
if refused then return refused end

if epoch > last then
  rec.session, rec.epoch, rec.op, rec.first = session, ARGV[2], '0', rec.last -- without the last holder's block
end
if upto > rec.last then rec.first, rec.last = first, upto end
rec.state, rec.keep = 'h', longer(rec.keep, ARGV[9])
-- This replaces the hold of an older epoch of the session, if there is one.
occupy(KEYS, rec, now, field, session .. ':' .. ARGV[3], ARGV[4], ARGV[5])
return {RESTORED, now}
