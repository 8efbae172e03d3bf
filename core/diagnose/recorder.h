/* The flight recorder's file: when it is written, and where.
 *
 * op/record.h records operations.  Here all groups of the process are known, whose records make one file.  It is
 * written when an operation fails, on SIGUSR2 (record_signal.h) and by tutti_record_write. */
#ifndef RECORDER_H
#define RECORDER_H

struct tutti_group;

/* Installs the handler of SIGUSR2, if TUTTI_RECORD_SIGNAL asks for it.  Called before ranks wait for each other to make
 * a first group: the signal would end the process. */
void recorder_start(void);

/* Add and remove a group.  No engine's lock may be held. */
void recorder_add(struct tutti_group *group);
void recorder_remove(struct tutti_group *group);

/* Keeps the operations under way of a group that fails, before they are ended.  Its engine's lock is held. */
void recorder_keep_waits(struct tutti_group *group);

/* Writes the file to TUTTI_RECORD_DIR, if that is set, because an operation of the group has failed.  Its engine's lock
 * is held.  If that fails, a line is logged once.  After many failures in a short time the file is written later. */
void recorder_failed(struct tutti_group *group, int status, const char *text);

/* Writes the file to folder, or to TUTTI_RECORD_DIR if it is NULL.  why: why it is written.  No engine's lock may be
 * held.  Returns INVALID_ARGUMENT if neither is given, SYSTEM if the file cannot be written. */
int recorder_write(const char *folder, const char *why);

#endif
