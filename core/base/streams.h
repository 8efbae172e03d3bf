/* stdin, stdout and stderr, where the program was started without them or has closed them. */
#ifndef BASE_STREAMS_H
#define BASE_STREAMS_H

/* Opens /dev/null in the place of those that are closed, and leaves it there.  A socket of ours would otherwise get
 * such a number: what the program prints, and our own log, would go into it, and libuv aborts where it is to close
 * one. */
void streams_fill(void);

#endif
