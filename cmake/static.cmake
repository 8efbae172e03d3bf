# libtutti.a and libtutti_train.a for programs.  Each holds one object whose internal names are local, so they cannot
# clash with the program's.  Plug-ins use no symbol of the library, so they load into such a program, too.
option(TUTTI_STATIC "also build static libraries for programs" OFF)

set(TUTTI_PRIVATE_LIBS "")
if(TUTTI_REDIS AND HIREDIS_FOUND)
  set(TUTTI_PRIVATE_LIBS ${HIREDIS_LDFLAGS})
endif()
list(APPEND TUTTI_PRIVATE_LIBS ${UV_LDFLAGS} ${SODIUM_LDFLAGS} -pthread -ldl -lm)
list(REMOVE_DUPLICATES TUTTI_PRIVATE_LIBS)
list(FILTER TUTTI_PRIVATE_LIBS EXCLUDE REGEX "^-L/usr/lib") # the linker searches there anyway
list(JOIN TUTTI_PRIVATE_LIBS " " TUTTI_PRIVATE_LIBS)

function(tutti_archive library)
  set(object ${CMAKE_BINARY_DIR}/static/${library}.o)
  set(archive ${CMAKE_BINARY_DIR}/lib/lib${library}.a)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/static ${CMAKE_BINARY_DIR}/lib
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib ${TUTTI_BY_FILE} -o ${object} $<TARGET_OBJECTS:${library}_objects>
    COMMAND ${CMAKE_OBJCOPY} --wildcard --localize-hidden --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_*
      --strip-symbol=__gnu_lto_* ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcsD ${archive} ${object}
    DEPENDS $<TARGET_OBJECTS:${library}_objects> COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${library}_archive ALL DEPENDS ${archive})
  add_dependencies(${library}_archive ${library}_objects) # for make, which does not find the objects' rules by itself
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

if(TUTTI_STATIC)
  tutti_archive(tutti)
  tutti_archive(tutti_train)
endif()
