# What cmake --install lays down: the doors and the stack in LIBDIR/anyverbs (never in the linker's own path: they would shadow
# the system's libibverbs), the two programs, the midlayer's headers, pkg-config, man pages, completion for bash.
set(AV_INSTALL_DOORS ${CMAKE_INSTALL_LIBDIR}/anyverbs)
# `cmake --build build --target stack`: what is installed, and no tests; a quarter of the whole.
add_custom_target(stack)
foreach(target anyverbs door_ibverbs door_rdmacm door_ibumad anyverbs-preload anyverbs-born anyverbs-rsockets)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION ${AV_INSTALL_DOORS})
    add_dependencies(stack ${target})
  endif()
endforeach()
if(TARGET anyverbs-preload)
  install(FILES ${AV_DOORS_DIR}/libanyverbs-preload-libasan.so DESTINATION ${AV_INSTALL_DOORS}) # a link, as such
endif()
foreach(target anyverbsd anyverbs_command)
  if(TARGET ${target})
    install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    add_dependencies(stack ${target})
  endif()
endforeach()
install(TARGETS anyverbs_ipoib RUNTIME DESTINATION ${AV_INSTALL_DOORS})
add_dependencies(stack anyverbs_ipoib)
install(TARGETS anyverbs_kernel ARCHIVE DESTINATION ${AV_INSTALL_DOORS})
add_dependencies(stack anyverbs_kernel)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/rdma ${CMAKE_SOURCE_DIR}/include/anyverbs ${CMAKE_SOURCE_DIR}/include/anyverbs-kernel
        ${CMAKE_SOURCE_DIR}/include/linux-6.1
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        # the system's own, which would be hidden, and in Debian belong to another package
        REGEX "/(ib_user_(mad|sa|verbs)|rdma_user_cm)\\.h$" EXCLUDE)

file(RELATIVE_PATH AV_PC_TO_INCLUDE /${CMAKE_INSTALL_LIBDIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR})
foreach(name anyverbs anyverbs-kernel anyverbs-linux-6.1)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

foreach(section 1 3 7 8)
  file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/tools/anyverbs/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME anyverbs)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
