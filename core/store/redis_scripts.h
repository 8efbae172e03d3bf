/* The Lua scripts of the redis store.  The server runs each as one atomic step.
 *
 *   KEYS[1]  data    a hash: the job's keys and values
 *   KEYS[2]  calls   a hash: for each link "N REPLY", the number of its last write and the reply to it
 *
 * A write is sent again if its reply is lost.  Its link and number tell whether it was done, and then its reply is
 * repeated.  A write that arrives after a later one of its link is refused: its call has ended, or has sent it again
 * over another connection.  A link that is not in `calls` was forgotten: the server has lost the job's data.  Both
 * hashes expire a fixed time after the last write, so that a job that was killed leaves nothing for ever.
 *
 * A write that creates a key publishes it, which wakes the calls that wait for it. */
#ifndef STORE_REDIS_SCRIPTS_H
#define STORE_REDIS_SCRIPTS_H

#define REDIS_EXPIRE_S "604800" /* 7 days */
#define REDIS_LOST_TEXT "TUTTILOST"
#define REDIS_LARGE_TEXT "TUTTILARGE"
#define REDIS_FOREIGN_TEXT "TUTTIFOREIGN"
#define REDIS_LATE_TEXT "TUTTILATE a later write of this connection is done"

/* calls, id, expiry */
static const char redis_script_register[] = "redis.call('HSET', KEYS[1], ARGV[1], '0 ')\n"
                                            "redis.call('EXPIRE', KEYS[1], ARGV[2])\n"
                                            "return 1\n";

/* Begins each write.  ARGV: link's id, number, expiry, then the operation's own from ARGV[4] on. */
#define REDIS_WRITE                                                                                                    \
    "local last = redis.call('HGET', KEYS[2], ARGV[1])\n"                                                              \
    "if not last then return redis.error_reply('" REDIS_LOST_TEXT "') end\n"                                           \
    "local number, reply = string.match(last, '^(%d+) (.*)$')\n"                                                       \
    "if number == ARGV[2] then return reply end\n"                                                                     \
    "if tonumber(number) > tonumber(ARGV[2]) then return redis.error_reply('" REDIS_LATE_TEXT "') end\n"               \
    "local function write(key, value)\n"                                                                               \
    "  if redis.call('HSET', KEYS[1], key, value) == 1 then\n"                                                         \
    "    redis.call('PUBLISH', KEYS[1] .. ':' .. key, '') end\n"                                                       \
    "end\n"                                                                                                            \
    "local function done(reply)\n"                                                                                     \
    "  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. reply)\n"                                                \
    "  redis.call('EXPIRE', KEYS[1], ARGV[3])\n"                                                                       \
    "  redis.call('EXPIRE', KEYS[2], ARGV[3])\n"                                                                       \
    "  return tostring(reply)\n"                                                                                       \
    "end\n"

/* key, value, .. */
static const char redis_script_set[] = REDIS_WRITE "for i = 4, #ARGV, 2 do write(ARGV[i], ARGV[i + 1]) end\n"
                                                   "return done('0')\n";

/* key, delta.  Returns the sum as text: Lua's numbers have 53 bits. */
static const char redis_script_add[] =
    REDIS_WRITE "local fresh = redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0\n"
                "local sum = redis.pcall('HINCRBY', KEYS[1], ARGV[4], ARGV[5])\n"
                "if type(sum) == 'table' then return sum end\n"
                "if fresh then redis.call('PUBLISH', KEYS[1] .. ':' .. ARGV[4], '') end\n"
                "return done(redis.call('HGET', KEYS[1], ARGV[4]))\n";

/* key, value, limit */
static const char redis_script_append[] =
    REDIS_WRITE "local value = (redis.call('HGET', KEYS[1], ARGV[4]) or '') .. ARGV[5]\n"
                "if #value > tonumber(ARGV[6]) then return redis.error_reply('" REDIS_LARGE_TEXT " ' .. #value) end\n"
                "write(ARGV[4], value)\n"
                "return done('0')\n";

/* key, expected, desired, limit.  Returns "1" if the key has been set to desired; else its value in an array, which is
 * empty if the key is absent. */
static const char redis_script_compare_set[] =
    REDIS_WRITE "local value = redis.call('HGET', KEYS[1], ARGV[4])\n"
                "if (value or '') ~= ARGV[5] then\n"
                "  if value and #value > tonumber(ARGV[7]) then\n"
                "    return redis.error_reply('" REDIS_FOREIGN_TEXT " ' .. #value) end\n"
                "  return {value or nil}\n"
                "end\n"
                "write(ARGV[4], ARGV[6])\n"
                "return done('1')\n";

/* key, "1" if it is a prefix.  Returns the number of keys deleted. */
static const char redis_script_delete[] =
    REDIS_WRITE "if ARGV[5] ~= '1' then return done(redis.call('HDEL', KEYS[1], ARGV[4])) end\n"
                "local n = 0\n"
                "for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do\n"
                "  if string.sub(key, 1, #ARGV[4]) == ARGV[4] then n = n + redis.call('HDEL', KEYS[1], key) end\n"
                "end\n"
                "return done(n)\n";

/* Reads have the data alone as KEYS[1], and no number.  limit, limit of a value, key, ..: returns the number of the
 * first key that is missing, from 1; else as many values as fit into limit bytes, and at least one.  A value that is
 * larger than the second limit cannot be Tutti's. */
static const char redis_script_get[] =
    "for i = 3, #ARGV do\n"
    "  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then return i - 2 end\n"
    "end\n"
    "local values, bytes = {}, 0\n"
    "for i = 3, #ARGV do\n"
    "  local value = redis.call('HGET', KEYS[1], ARGV[i])\n"
    "  if #value > tonumber(ARGV[2]) then return redis.error_reply('" REDIS_FOREIGN_TEXT " ' .. #value) end\n"
    "  bytes = bytes + #value + 8\n"
    "  if i > 3 and bytes > tonumber(ARGV[1]) then break end\n"
    "  values[i - 2] = value\n"
    "end\n"
    "return values\n";

/* Two unused limits, key, ..: returns the numbers of the keys that are missing, from 1. */
static const char redis_script_missing[] =
    "local missing = {}\n"
    "for i = 3, #ARGV do\n"
    "  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then missing[#missing + 1] = i - 2 end\n"
    "end\n"
    "return missing\n";

/* Two unused limits, prefix: returns the number of keys that begin with it. */
static const char redis_script_count[] = "if ARGV[3] == '' then return redis.call('HLEN', KEYS[1]) end\n"
                                         "local n = 0\n"
                                         "for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do\n"
                                         "  if string.sub(key, 1, #ARGV[3]) == ARGV[3] then n = n + 1 end\n"
                                         "end\n"
                                         "return n\n";

#endif
