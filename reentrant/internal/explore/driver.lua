-- driver: runs one script after another in one interpreter, which costs far less than an EVAL for each.
--
-- ARGV  the texts of the scripts
-- It asks for what to do with the command EXPLORE, whose arguments are what came of the last run: "ok" and what the
-- script returned, or "error" and why. The answer is the number of a script ("number/commands" if it is to stop after so
-- many), the number of its keys, keys and arguments; or nothing, and that is the end.

local scripts = {}
for i, text in ipairs(ARGV) do
  scripts[i] = assert(loadstring('local KEYS, ARGV, redis = ...; ' .. text))
end

local function answer(ok, result)
  if not ok then return {'error', type(result) == 'table' and result.err or tostring(result)} end
  if type(result) ~= 'table' then result = {result} end
  if result.err then return {'error', result.err} end
  local texts = {'ok'}
  for i, x in ipairs(result) do
    texts[i + 1] = type(x) == 'number' and string.format('%.0f', x) or x
  end
  return texts
end

-- stopping returns a redis whose call fails after so many commands. What pcall catches does not stop a script.
local function stopping(after)
  local function call(...)
    if after == 0 then error('stopped') end
    after = after - 1
    return redis.call(...)
  end
  return {call = call, pcall = redis.pcall, error_reply = redis.error_reply}
end

local last = {'ok'}
while true do
  local job = redis.call('EXPLORE', unpack(last))
  if not job then return end
  local keys, args = {}, {}
  for i = 3, #job do
    if i < 3 + job[2] then keys[#keys + 1] = job[i] else args[#args + 1] = job[i] end
  end
  local number, stop = string.match(job[1], '^(%d+)/?(%d*)$')
  last = answer(pcall(scripts[tonumber(number)], keys, args, stop == '' and redis or stopping(tonumber(stop))))
end
