/* Keeps the numbers of stdin, stdout and stderr in use if the program was started without them or has closed them. */
#ifndef BASE_STREAMS_H
#define BASE_STREAMS_H

/* Opens /dev/null in place of each closed stream and leaves it open.  Otherwise a socket of the library could get such
 * a number.  The program's output and the log would be written to it, and libuv aborts if it has to close one. */
void streams_fill(void);

#endif
