/* Checks files of code before they are loaded into the process. */
#ifndef FILE_CHECK_H
#define FILE_CHECK_H

/* Checks that no other user can write the file, because its code would run with this user's rights.  The rights of its
 * folder decide who can replace the file.  They are not checked, because the administrator or a variable of this
 * process's environment chose the folder.  Returns BACKEND. */
int file_check(const char *path);

#endif
