-- common.lua: what most scripts share. The loader puts it before each of these; it runs nothing by itself.
--
-- Keys of a lock N (all in one cluster slot; every script gets the ones it needs in KEYS):
--   hold     hash    N itself: field "<session>:<owner>" -> holds; its TTL is the lease. One field, or see sole.
--                    A hold that was released, and stays for a time, has the field "!:<session>:<owner>": no session has
--                    the id "!".
--   record   string  "first last session epoch op state keep[ tombstone]..."
--                      first..last  the block of fencing tokens of the last grant; mostly one token
--                      session, epoch  of the attempt that last got the lock
--                      op           the last re-entry or signal within that epoch
--                      state        g: pushed to a waiter and perhaps not accepted yet; w: held, and its session gets
--                                   a message for each session that queues up (watch.lua); h: otherwise
--                      keep         for how many seconds the record outlives its last change
--                      tombstone    "session:epoch:until": attempts of the session up to that epoch are refused until
--                                   that time
--   queue    list    waiting sessions, longest first
--   waiters  hash    session -> "epoch deadline grant holds tokens seen keep owner" (deadline: Redis time in us)
--   note     string  "token text": the note of the holder whose last token that is
--
-- Tokens are given out only up to a year beyond the clock (FARTHEST). A request that would need a higher one is refused
-- with the error FARTOKEN, and nothing is changed: the token that the session has seen, or the record, was forged. If a
-- key has what no session has written, such as a hold without an owner or a text that is no record, the error is WRONGTYPE,
-- and nothing is changed either; but a place, a ticket or a note that cannot be read counts as if it were missing. The
-- owner '*linger' stands for a session that may have the lock while none of its owners needs it. Times are Redis's own,
-- in microseconds; TTLs in milliseconds. Numbers are written with %.0f: concatenation would round them to 14 digits.
--
-- A run may stop half-way: a command fails, and what was done before it stays. In a Cluster slot that is marked as
-- migrating every command on a key that is missing at that moment fails, also on one that the run itself has emptied.
-- So a run that stops after any of its commands must leave a state that all others can go on from:
--   - what may make the run fail is read first, with pcall: a script that returns an error has written nothing
--   - a new holder's field comes before the old one goes, and the record after both: until then it names the old holder
--   - the record of a free lock comes before the hold, which may then be left without a TTL: foreign knows it by the record
--   - waiters leave the queue, and tickets the condition, when all that they get is there; nothing is read after that
--   - a hold is deleted by the last command
-- Numbers that are only passed on stay text: converting costs more than most commands. Owners and names are
-- concatenated: they may be any bytes, and %s ends at the first NUL.

local SHARDED = false -- true in a Cluster: scripts.go

local HORIZON = 5000000 -- us beyond the clock: a block of more than one token ends there
local FARTHEST = 366 * 86400 * 1000000 -- us beyond the clock: no token is higher

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local function text(number)
  return string.format('%.0f', number)
end

-- garbage returns the error of a key that has what no session has written there. errors.go recognises it by its code.
local function garbage(what)
  return redis.error_reply('WRONGTYPE the key has ' .. what)
end

-- record reads the record of a lock; a lock that has none gets one without a session. Tokens are numbers, all else is
-- text. If raw is an error, record returns it. If raw is not the text of a record, record returns an error of its own.
local function record(raw)
  if not raw then
    return {first = 0, last = 0, session = '-', epoch = '0', op = '0', state = 'h', keep = '0', tombs = ''}
  end
  if raw.err then return raw end
  local first, last, session, epoch, op, state, keep, tombs =
    string.match(raw, '^(%d+) (%d+) (%S+) (%d+) (%d+) (%a) (%d+)(.*)$')
  first, last = tonumber(first), tonumber(last)
  if not keep or first > last or #keep > 10 or #epoch > 16 then return garbage('a text that is not the record of a lock') end
  return {first = first, last = last, session = session, epoch = epoch, op = op, state = state, keep = keep, tombs = tombs}
end

-- retention returns for how many seconds the record is kept. Blocks may have run the tokens ahead of the clock. Then the
-- record is kept for longer by as much: when it is gone, tokens start from the clock again, which is past the last one.
local function retention(rec, now)
  if rec.last <= now then return rec.keep end
  return text(rec.keep + math.ceil(math.min(rec.last - now, FARTHEST) / 1000000))
end

local function save(key, rec, now)
  local last = text(rec.last)
  local first = rec.first == rec.last and last or text(rec.first)
  redis.call('SET', key, first .. ' ' .. last .. ' ' .. rec.session .. ' ' .. rec.epoch .. ' ' .. rec.op .. ' '
    .. rec.state .. ' ' .. rec.keep .. rec.tombs, 'EX', retention(rec, now))
end

-- longer returns the longer of two numbers of seconds.
local function longer(a, b)
  return tonumber(a) > tonumber(b) and a or b
end

-- outlast makes a key last for at least so many seconds. All sessions share the key, so a longer TTL stays as it is.
local function outlast(key, seconds)
  if redis.call('PTTL', key) < tonumber(seconds) * 1000 then redis.call('EXPIRE', key, seconds) end
end

-- entombed reports whether a tombstone refuses an attempt: the attempt was given up while a copy of it might still be under
-- way. If all tombstones have expired, entombed removes them, so that later runs need not read them.
local function entombed(rec, session, epoch, now)
  local live = false
  for owner, upto, till in string.gmatch(rec.tombs, ' (%S+):(%d+):(%d+)') do
    if now <= tonumber(till) then
      if owner == session and epoch <= tonumber(upto) then return true end
      live = true
    end
  end
  if not live then rec.tombs = '' end
  return false
end

-- entomb adds a tombstone that refuses the session's attempts up to an epoch until the time till, and removes tombstones
-- that have expired.
local function entomb(rec, session, epoch, till, now)
  local kept = ''
  for owner, upto, limit in string.gmatch(rec.tombs, ' (%S+):(%d+):(%d+)') do
    if owner == session then
      epoch, till = math.max(epoch, tonumber(upto)), math.max(till, tonumber(limit))
    elseif now <= tonumber(limit) then
      kept = kept .. ' ' .. owner .. ':' .. upto .. ':' .. limit
    end
  end
  rec.tombs = kept .. ' ' .. session .. ':' .. text(epoch) .. ':' .. text(till)
end

-- of reports whether a field of the hold hash is a session's.
local function of(session, field)
  return string.find(field, session .. ':', 1, true) == 1
end

-- sole returns the field of the holder. The hash has other fields only if a run stopped before it had deleted the last
-- holder's field and written the record: then the session that the record names has the lock.
local function sole(all, rec)
  for i = 3, #all, 2 do
    if of(rec.session, all[i]) and not of(rec.session, all[1]) then return all[i] end
  end
  return all[1]
end

-- holder returns the holder's field of the hold hash, if there is one, and whether the field is the session's. If the key
-- has another type, holder returns an error. It deletes other fields that a run which stopped has left. rec may be missing.
local function holder(k, session, rec)
  local all = redis.pcall('HGETALL', k[1])
  if all.err then return all end
  local field = all[1]
  if all[3] then
    rec = rec or record(redis.call('GET', k[2]))
    field = sole(all, rec)
    for i = 1, of(rec.session, field) and #all or 0, 2 do
      if all[i] ~= field then redis.call('HDEL', k[1], all[i]) end
    end
  end
  return field, field and of(session, field)
end

-- look reads the lock with the keys k, and returns its record and what holder returns. If a key has something else than a
-- lock has there, look returns an error (with the field err) in place of the record, and the script returns that error.
local function look(k, session)
  local rec = record(redis.pcall('GET', k[2]))
  if rec.err then return rec end
  local field, mine = holder(k, session, rec)
  if field and field.err then return field end
  return rec, field, mine
end

-- counted returns the hold count that a text shows, nil if the text is no hold count.
local function counted(holds)
  return #holds <= 10 and string.find(holds, '^[1-9]%d*$') and tonumber(holds)
end

-- foreign returns an error if the hash that has the field is no lock: a hold expires, has an owner, and has a count, which
-- foreign checks if holds is given. A hold without a TTL is a lock if the record or a place is of its session: then a run
-- that stopped has left it, and it gets the lease as its TTL, if a lease is given.
local function foreign(k, rec, field, ttl, lease, holds)
  local session = string.match(field, '^([^:]*):')
  if ttl == -1 and session and (session == rec.session or k[4] and redis.call('HEXISTS', k[4], session) == 1) then
    if lease then redis.call('PEXPIRE', k[1], lease) end
  elseif ttl == -1 or not session then
    return garbage('a hash that is not a lock')
  end
  if holds and not counted(holds) then return garbage('a hash that is not a lock') end
end

-- far returns an error if the tokens of an attempt would be further ahead of the clock than FARTHEST.
local function far(rec, now, tokens, seen)
  if math.max(rec.last, tonumber(seen)) > now + FARTHEST - tokens then
    return redis.error_reply("FARTOKEN the fencing tokens would be more than a year ahead of the server's clock")
  end
end

-- issue gives the record to an attempt, with a new block of tokens: above every token of this lock, not below the
-- clock (so that they rise even if Redis forgot the last one) and above the highest that the session has seen. The
-- block ends at the HORIZON, so it may be smaller than requested, and has at least one token.
local function issue(rec, now, session, epoch, tokens, seen, state, keep)
  rec.first = math.max(rec.last + 1, now, seen + 1)
  rec.last = math.max(rec.first, math.min(rec.first + tokens - 1, now + HORIZON))
  rec.session, rec.epoch, rec.op, rec.state, rec.keep = session, epoch, '0', state, longer(rec.keep, keep)
end

-- waiting returns the first session of the queue that is alive, if there is one. It also returns the list of the dead before
-- it, whose deadline has passed or whose place cannot be read; nil if there are none. It writes nothing. If whose and upto
-- are given, a place of the session whose, with an epoch up to upto, counts as dead.
local function waiting(k, now, whose, upto)
  local dead
  while true do
    local session = redis.call('LINDEX', k[3], dead and #dead or '0')
    if not session then return nil, dead end
    local raw = redis.call('HGET', k[4], session)
    if raw then
      local epoch, deadline, grant, holds, tokens, seen, keep, owner =
        string.match(raw, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
      if not owner or #grant > 15 or #holds > 10 or #keep > 10 then deadline = '0' end
      if now <= tonumber(deadline) and not (session == whose and tonumber(epoch) <= upto) then
        return {session = session, epoch = epoch, grant = grant, holds = holds, tokens = tokens, seen = seen,
          keep = keep, owner = owner}, dead
      end
    end
    dead = dead or {}
    dead[#dead + 1] = session
  end
end

local MANY = 1000 -- as many arguments as a command gets at once: Lua can hand over some thousands

-- depart takes the dead out of the queue, and then the session first, which follows them, if it is given. If placed is
-- given, it is a session that has a new place at the end, and its entry among the waiters stays.
local function depart(k, dead, first, placed)
  if not dead then
    if first then
      redis.call('LPOP', k[3])
      redis.call('HDEL', k[4], first)
    end
    return
  end
  dead[#dead + 1] = first
  local entries = {}
  for _, session in ipairs(dead) do
    redis.call('LPOP', k[3])
    if session ~= placed then entries[#entries + 1] = session end
  end
  for i = 1, #entries, MANY do
    redis.call('HDEL', k[4], unpack(entries, i, math.min(i + MANY - 1, #entries)))
  end
end

-- drop takes a session out of the queue.
local function drop(k, session)
  redis.call('LREM', k[3], '0', session)
  redis.call('HDEL', k[4], session)
end

-- tell sends a session a message. The message is a hint, so an error does not fail the script. In a Cluster PUBLISH reaches
-- a session wherever it listens, but through every node. So tell first tries the session's channel for this lock's tag,
-- whose messages stay on this node: the session listens there once it has waited here for a while (shards.go).
local function tell(channel, session, hold, message)
  if SHARDED then
    local tag = string.match(hold, '{([^}]*)}') or hold
    local heard = redis.pcall('SPUBLISH', channel .. '{' .. tag .. '}:' .. session, message)
    if type(heard) == 'number' and heard > 0 then return end
  end
  redis.pcall('PUBLISH', channel .. session, message)
end

-- noted returns the note of the hold whose record this is, '' if it has none.
local function noted(key, rec)
  local raw = redis.pcall('GET', key)
  local token, note = string.match(type(raw) == 'string' and raw or '', '^(%d+) (.*)$')
  return token == text(rec.last) and note or ''
end

-- wanted sends a message to the holder's session that another session asks for the lock. It does so if the holder may keep
-- the lock without needing it (linger), or if the other session queues up and the holder watches for waiters.
local function wanted(channel, rec, owner, hold, queues)
  if owner == '*linger' or queues and rec.state == 'w' then
    tell(channel, rec.session, hold, 'w ' .. rec.epoch .. ' ' .. hold)
  end
end

-- occupy gives the hold the field name, in place of the old field if there is one, and saves the record. The hold's TTL
-- stays if none is given.
local function occupy(k, rec, now, field, name, holds, ttl)
  if not field then save(k[2], rec, now) end
  redis.call('HSET', k[1], name, holds)
  if field and field ~= name then redis.call('HDEL', k[1], field) end
  if ttl then redis.call('PEXPIRE', k[1], ttl) end
  if field then save(k[2], rec, now) end
end

-- grant makes the waiter w the holder for its grant TTL, in place of field if that is given, and sends a message to that
-- session alone. The dead before w leave the queue with w, but the entry of placed stays (see depart). The message comes
-- last and cannot fail the script, since it is a hint and only the state counts. If w's token would be too far ahead of the
-- clock (far), grant does nothing and returns false: w's next attempt gets the error.
local function grant(k, rec, now, w, dead, channel, field, placed)
  if far(rec, now, w.tokens, w.seen) then return false end
  local behind = w.owner == '*linger' and redis.call('LINDEX', k[3], dead and #dead + 1 or '1')
  issue(rec, now, w.session, w.epoch, w.tokens, w.seen, 'g', w.keep)
  occupy(k, rec, now, field, w.session .. ':' .. w.owner, w.holds, w.grant)
  depart(k, dead, w.session, placed)
  tell(channel, w.session, k[1], string.format('g %s %.0f %.0f %s %.0f ',
    w.epoch, rec.first, rec.last, w.grant, now) .. k[1])
  if behind then wanted(channel, rec, w.owner, k[1]) end
  return true
end

-- vacate takes the lock from its holder, if it has one, and gives it to the first live waiter (see waiting). It returns
-- whether the lock is free afterwards. It saves the record if the lock is granted, or if dirty is set.
local function vacate(k, rec, now, field, channel, dirty, whose, upto)
  local next, dead = waiting(k, now, whose, upto)
  if next and grant(k, rec, now, next, dead, channel, field) then return false end
  if dirty then save(k[2], rec, now) end
  depart(k, dead)
  if field then redis.call('DEL', k[1]) end
  return true
end
