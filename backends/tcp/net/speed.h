/* Speeds of network devices, as pure functions. */
#ifndef TCP_SPEED_H
#define TCP_SPEED_H

#include <stdint.h>

/* Returns bytes per us, at least 1, of a speed in bits per second; 0 for 0 or an impossible speed. */
int64_t speed_of(uint64_t bits_per_s);

/* Parses /sys/class/net/IF/speed, a decimal number in Mbit/s.  Returns bytes per us, or 0 if the kernel does not know
 * the speed (-1) or the text is malformed. */
int64_t speed_parse(const char *text);

#endif
