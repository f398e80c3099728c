int toolbox;
