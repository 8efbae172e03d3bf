/* stdin, stdout and stderr of a program that was started without them or has closed them. */
#ifndef BASE_STREAMS_H
#define BASE_STREAMS_H

/* Opens /dev/null in place of those that are closed, and leaves it open.  Otherwise a socket of the library would get
 * such a number: output of the program and the log would be written to it, and libuv aborts if it has to close one. */
void streams_fill(void);

#endif
