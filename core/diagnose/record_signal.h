/* Writes the flight recorder on SIGUSR2, if the program asks for it. */
#ifndef RECORD_SIGNAL_H
#define RECORD_SIGNAL_H

/* Calls write in a thread of its own on each SIGUSR2, if TUTTI_RECORD_SIGNAL is set.  Never replaces a handler: if the
 * program has one, or ignores the signal, it stays, with a log line. */
void record_signal_start(void (*write)(void));

#endif
