/* Faults of files below one folder: system calls that fail, or end the process, and what is not on disk yet.  A program
 * that uses this links with --wrap for open, mkdir, write, fsync, close and rename. */
#ifndef TESTS_FILE_FAULTS_H
#define TESTS_FILE_FAULTS_H

#include <stdbool.h>

enum file_fault { FILE_FAULT_NONE, FILE_FAULT_ENOSPC, FILE_FAULT_EIO, FILE_FAULT_CRASH };

/* From now on the nth call for this folder, from 1, has the fault.  Half of the data of a write that crashes is
 * written. */
void file_faults_arm(const char *folder, enum file_fault fault, int nth);

/* Returns the number of calls for the folder since file_faults_arm. */
int file_faults_calls(void);

/* True if a folder got its name before all that was written below it was on disk. */
bool file_faults_renamed_too_early(void);

/* True if something written, or the new name of a folder, is not on disk yet. */
bool file_faults_unsynced(void);

#endif
