/* TUTTI_TRACE: a tool (tool/) that records every operation of this process in files, which tutti-trace reads. */
#ifndef CORE_TRACE_H
#define CORE_TRACE_H

/* Registers the tool if TUTTI_TRACE names a folder.  Does nothing after the first call. */
void trace_load(void);

#endif
