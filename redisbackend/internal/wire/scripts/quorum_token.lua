-- quorum_token: writes back the token that a majority of the nodes has settled on, on behalf of a hold.
--
-- KEYS  1 hold  2 record
-- ARGV  1 session  2 epoch of the hold  3 first token, 4 last token of its block
-- Returns  {code, now}   1 done: no later holder gets a token from here that is not above the block
--          2 gone: this epoch does not have the lock   or the error FARTOKEN, and nothing is touched
-- Keeps    the last token never falls.
-- Twice    the second run finds the block there.
-- Late     if the epoch does not have the lock any more, nothing changes; and the last token never falls.

local session, first, last = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local DONE, GONE = 1, 2

local now = clock()
local rec, _, mine = look(KEYS, session)
if rec.err then return rec end
if not mine or rec.session ~= session or tonumber(rec.epoch) ~= tonumber(ARGV[2]) then return {GONE, now} end
local refused = far(rec, now, 0, last)
if refused then return refused end
if last > rec.last then
  rec.first, rec.last = first, last
  save(KEYS[2], rec, now)
end
return {DONE, now}
