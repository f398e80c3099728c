# what cmake --install lays down
