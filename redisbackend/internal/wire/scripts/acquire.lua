-- acquire: an attempt of a session to get the lock for one of its owners. Acquire is also sent to repeat that attempt,
-- as the heartbeat of a waiter, to confirm a grant, and to pass the lock to the session's next owner. vacant.lua comes
-- first, and takes a free lock if it can.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 session   2 epoch   3 owner   4 holds wanted   5 lease, ms
--       6 not after: Redis time, us, from which this copy is refused
--       7 flags, any of
--           q  queue up if the lock is taken      b  barge: do not wait behind others for a free lock
--           y  yield: give the lock to the first waiter, if there is one, and with q queue up behind
--           f  fixed lease: it starts once        k  keep the TTL when the session itself has the lock
--       8 tokens wanted   9 highest token this session has seen
--      10 patience, ms: the place is dropped if no run has refreshed it for so long
--      11 grant TTL, ms  12 channel prefix  13 seconds that the record is kept
--      14 seconds that the record is kept at least, if no session waits
-- Returns  now, if the lock was free: it is granted, with now as the token, and the record is kept as 14 says; or
--          {code, now, a, b, c}
--   1 granted: a first token; b last token (perhaps of fewer tokens than wanted); c with f: what is left of the lease,
--     ms; and a sixth element, for pass.lua, take.lua and free.lua: the record's keep, followed by its tombstones if
--     there are any; 0 if the record's op is not 0
--   2 waiting (q), or held by another session: a TTL of the holder, ms; b 1 if the holder may not need the lock, and
--     was asked for it; else 0
--   3 stale: this epoch has had the lock or was given up, or a higher one was sent
--   4 late: not after has passed
--   or an error, and nothing is touched: WRONGTYPE, the key has something else than a lock; FARTOKEN, see common.lua
-- Keeps    at most one field in the hold hash; tokens rise; an epoch that had the lock does not get it again while
--          the record is of its session (after that its tombstone and its not after keep late copies out).
-- Twice    the second run finds that the attempt has the lock (full lease, same token), has a place (the deadline
--          moves), or has had its turn (stale). A copy of an older attempt is stale.
-- Late     after its not after it does nothing; until then, a copy of an attempt that was given up finds a tombstone.

local session, epoch, owner, holds = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local lease, flags, tokens, seen = ARGV[5], ARGV[7], ARGV[8], ARGV[9]
local patience, channel, keep = ARGV[10], ARGV[12], ARGV[13]
local GRANTED, WAITING, STALE, LATE = 1, 2, 3, 4

local function flag(letter) return string.find(flags, letter, 1, true) end

local now = clock()
if now > tonumber(ARGV[6]) then return {LATE, now, 0, 0, 0} end
local rec, field, mine = look(KEYS, session)
if rec.err then return rec end
if rec.tombs ~= '' and entombed(rec, session, epoch, now) then return {STALE, now, 0, 0, 0} end
local last = rec.session == session and tonumber(rec.epoch) or 0
if epoch < last or (epoch == last and not mine) then return {STALE, now, 0, 0, 0} end

local refused = far(rec, now, tokens, seen)
if refused then return refused end

-- place gives the session a place at the end of the queue, or moves the deadline of the place that it has. If the
-- session is among the dead, its old place is lost. It returns false if the session has a place of a higher epoch.
local function place(dead)
  local raw, lost = redis.call('HGET', KEYS[4], session), false
  if raw and not string.find(raw, '^%d') then raw = '0' end -- a place that cannot be read
  if raw and tonumber(string.match(raw, '^%d+')) > epoch then return false end
  for _, other in ipairs(dead or {}) do lost = lost or other == session end
  -- The list may be lost without the hash (eviction, a run that stopped). It is read before anything is written, so
  -- that a key of another type fails the script here.
  local there = redis.call('LINDEX', KEYS[3], '0') and raw and not lost and redis.call('LPOS', KEYS[3], session)
  redis.call('HSET', KEYS[4], session, ARGV[2] .. ' ' .. text(now + patience * 1000) .. ' ' .. ARGV[11] .. ' '
    .. holds .. ' ' .. tokens .. ' ' .. seen .. ' ' .. keep .. ' ' .. owner)
  if not there then redis.call('RPUSH', KEYS[3], session) end
  outlast(KEYS[3], keep)
  outlast(KEYS[4], keep)
  return true
end

-- granted returns the reply to an attempt that has the lock.
local function granted()
  return {GRANTED, now, rec.first, rec.last, flag('f') and redis.call('PTTL', KEYS[1]) or 0,
    rec.op ~= '0' and 0 or rec.tombs == '' and tonumber(rec.keep) or rec.keep .. rec.tombs}
end

-- wait returns the reply to an attempt that cannot have the lock now. With the flag q it first takes or renews a place.
local function wait(ttl)
  if flag('q') and not place() then return {STALE, now, 0, 0, 0} end
  local by = string.match(field, ':(.*)$')
  wanted(channel, rec, by, KEYS[1], flag('q'))
  return {WAITING, now, ttl, by == '*linger' and 1 or 0, 0}
end

if mine and epoch == last then -- a resend, or a heartbeat after the grant, or the confirmation of the grant
  if not flag('f') or rec.state == 'g' then redis.call('PEXPIRE', KEYS[1], lease) end
  if rec.state == 'g' or tonumber(rec.keep) < tonumber(keep) then -- vacant.lua chose a keep that suffices for one copy
    if rec.state == 'g' then rec.state = 'h' end
    rec.keep = longer(rec.keep, keep)
    save(KEYS[2], rec, now)
  end
  return granted()
end

if mine then -- a newer attempt of the same session takes over
  local next, dead
  if flag('y') then next, dead = waiting(KEYS, now) end
  if next then
    if flag('q') then place(dead) end -- behind all others, before the grant, which sends the message last
    if not grant(KEYS, rec, now, next, dead, channel, field, flag('q') and session) then redis.call('DEL', KEYS[1]) end
    return {WAITING, now, tonumber(next.grant), 0, 0}
  end
  local stopped = rec.session ~= session -- a run stopped after it granted the lock to this session: its place is left
  -- An earlier message named the session's last attempt, not this one. (With y no other session waits.)
  local others = owner == '*linger' and not flag('y') and redis.call('LINDEX', KEYS[3], '0')
  issue(rec, now, session, ARGV[2], tokens, seen, 'h', flag('y') and keep or ARGV[14])
  occupy(KEYS, rec, now, field, session .. ':' .. owner, holds, not flag('k') and lease)
  depart(KEYS, dead)
  if stopped then drop(KEYS, session) end
  if others then wanted(channel, rec, owner, KEYS[1]) end
  return granted()
end

if field then -- another session's
  local ttl = redis.call('PTTL', KEYS[1])
  return foreign(KEYS, rec, field, ttl, lease) or wait(ttl)
end

local next, dead = waiting(KEYS, now)
if next and next.session ~= session and not flag('b') then
  if flag('q') and not place(dead) then return {STALE, now, 0, 0, 0} end
  grant(KEYS, rec, now, next, dead, channel, nil, flag('q') and session)
  return {WAITING, now, tonumber(next.grant), 0, 0}
end
local placed, others
if next then
  placed = redis.call('HGET', KEYS[4], session)
  if placed and not string.find(placed, '^%d') then placed = '0' end
  if placed and tonumber(string.match(placed, '^%d+')) > epoch then return {STALE, now, 0, 0, 0} end
  others = next.session ~= session or redis.call('LINDEX', KEYS[3], dead and #dead + 1 or '1')
end
issue(rec, now, session, ARGV[2], tokens, seen, 'h', keep)
occupy(KEYS, rec, now, nil, session .. ':' .. owner, holds, lease)
depart(KEYS, dead)
if placed then drop(KEYS, session) end -- the place is no longer needed
if others then wanted(channel, rec, owner, KEYS[1]) end
return granted()
