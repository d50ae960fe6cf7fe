-- note: stores a note for a session's hold; inspect.lua returns the note. The note has the hold's token, so it is shown
-- with no other hold, and stays with the hold when another session resumes the hold.
--
-- KEYS  1 hold  2 record  3 note
-- ARGV  1 session  2 epoch  3 text  4 for how many seconds the note is kept at least
-- Returns  {code, now}   1 kept   2 gone: this epoch does not have the lock
-- Keeps    everything else. The note lasts no less than the record would if it were saved now.
-- Twice    the note's TTL counts from the second run.
-- Late     a note of an epoch that no longer has the lock is not stored. Of two notes of one epoch the last to arrive
--          stays, until the session writes its note again.

local session, epoch = ARGV[1], tonumber(ARGV[2])
local KEPT, GONE = 1, 2

local now = clock()
local rec, _, mine = look(KEYS, session)
if rec.err then return rec end
if not mine or rec.session ~= session or tonumber(rec.epoch) ~= epoch then return {GONE, now} end
redis.call('SET', KEYS[3], text(rec.last) .. ' ' .. ARGV[3], 'EX',
  longer(ARGV[4], retention(rec, now)))
return {KEPT, now}
