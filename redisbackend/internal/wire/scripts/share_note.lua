-- share_note: stores or deletes a note for the units that a session has of a shared name; share_inspect returns the
-- note. The note belongs to the last grant of units to the session, so it is not shown after a later grant.
--
-- KEYS  1 record
-- ARGV  1 session  2 epoch  3 text; "" deletes the note
-- Returns  {code, now}   1 kept   2 gone: this is not the session's last epoch, or it has no live units
-- Keeps    everything else. The note is deleted with the session's entry.
-- Twice    the same.
-- Late     a note of an epoch that is not the last is not stored. Of two notes of one epoch the last to arrive stays,
--          until the session writes its note again.

local session, epoch, note = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local KEPT, GONE = 1, 2

local now = clock()
local raw = redis.pcall('HGET', KEYS[1], session)
if type(raw) == 'table' and not string.find(raw.err, 'WRONGTYPE', 1, true) then return raw end
local e = type(raw) == 'string' and read(session, raw)
if not e or tonumber(e.epoch) ~= epoch or e.units == 0 or now > e.till then return {GONE, now} end
if note == '' then
  redis.call('HDEL', KEYS[1], notefield(session))
else
  redis.call('HSET', KEYS[1], notefield(session), e.got .. ' ' .. note)
end
return {KEPT, now}
