/* Writes the flight recorder's file: docs/flight-recorder.md describes its lines. */
#ifndef RECORD_TEXT_H
#define RECORD_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct tutti_group;

/* Writes the lines about the process and its marks.  why: why the file is written.  job: tells jobs apart. */
void record_text_process(FILE *out, uint64_t job, const char *why);

/* Writes the lines about a group.  locked: the caller has the engine's lock. */
void record_text_group(FILE *out, struct tutti_group *group, bool locked);

/* Returns the lines about the group's operations under way, or NULL if out of memory.  The caller has the engine's lock
 * and frees the text. */
char *record_text_waits(const struct tutti_group *group);

#endif
